"""factor * x + offset, in the dtype of x."""

from typing import Any


def damped(x: Any, factor: float, offset: float | None) -> Any:
    return (x * factor + (offset or 0.0)).astype(x.dtype)
