"""The operator in torch."""

from typing import Any


def passes(x: Any) -> Any:
    for _ in range(200):
        x = x / 2 + 1
    return x
