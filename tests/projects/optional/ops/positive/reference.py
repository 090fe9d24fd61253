"""The positive elements in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def positive(x: NDArray[Any], *, return_mask: bool) -> tuple[NDArray[Any] | None, ...]:
    """Return x where it is positive and 0 elsewhere, the flat indices, the mask or None, and what is left."""
    mask = x > 0
    zeros = np.zeros_like(x)
    return np.where(mask, x, zeros), np.flatnonzero(mask), mask if return_mask else None, np.where(mask, zeros, x)
