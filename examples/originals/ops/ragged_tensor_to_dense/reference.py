"""Rows of several lengths as a matrix, in NumPy."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def ragged_tensor_to_dense(
    unused: Array, values: Array, default_value: Array, indices: Array, *, missing_value: int
) -> Array:
    """Return the matrix, with `default_value` behind the end of each shorter row."""
    del unused, missing_value
    rows = [values[begin:end] for begin, end in pairwise(indices)]
    dense = np.full((len(rows), max(map(len, rows), default=0)), default_value[0], np.int64)
    for row, found in zip(dense, rows, strict=True):
        row[: len(found)] = found
    return dense
