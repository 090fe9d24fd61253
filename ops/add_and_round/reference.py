"""Add and round in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def add_and_round(x: NDArray[Any]) -> NDArray[Any]:
    """Return y of x's shape: x + x, the nearest whole number, the even one of two as near."""
    with np.errstate(over="ignore"):  # as IEEE 754 has it
        return np.asarray(np.rint(x + x) if x.dtype.kind == "f" else x + x, x.dtype)
