"""Rows of strings as a matrix, in NumPy."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def string_ragged_tensor_to_dense(unused: Array, values: Array, indices: Array, default_value: Array) -> Array:
    """Return the matrix, with empty strings behind the end of each shorter row."""
    del unused, default_value
    rows = [values[begin:end] for begin, end in pairwise(indices)]
    dense = np.full((len(rows), max(map(len, rows), default=0)), "", object)
    for row, found in zip(dense, rows, strict=True):
        row[: len(found)] = found
    return dense
