"""x + alpha * y, in the dtype of x."""

from typing import Any


def axpy(x: Any, y: Any, alpha: float) -> Any:
    return (x + alpha * y).astype(x.dtype)
