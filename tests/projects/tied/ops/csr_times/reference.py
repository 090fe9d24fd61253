"""A sparse matrix times a vector in NumPy."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def csr_times(x: Floats, elements: Floats, columns: Integers, offsets: Integers) -> Floats:
    """Return y, of shape (R,)."""
    if offsets[0] != 0 or offsets[-1] != len(elements) or (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets must ascend from 0 to {len(elements)}, got {offsets}")
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    y = np.zeros(len(offsets) - 1, elements.dtype)
    np.add.at(y, rows, elements * x[columns])
    return y
