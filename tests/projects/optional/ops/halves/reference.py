"""Halves in NumPy."""

import numpy as np
from numpy.typing import NDArray


def halves(x: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rest and the half, rounded down."""
    half, rest = np.divmod(x, 2)
    return rest, half
