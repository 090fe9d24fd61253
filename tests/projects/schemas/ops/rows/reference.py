"""The formula in NumPy."""

from typing import Any


def rows(x: Any, weight: Any, other: Any, *, is_signed: bool, factor: float) -> Any:
    y = x * weight * factor
    if other is None:
        return y
    return y - other if is_signed else y + other
