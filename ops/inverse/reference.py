"""The inverse in NumPy: Gauss-Jordan elimination with pivots, in the precision of numpy.longdouble."""

import numpy as np
from numpy.typing import NDArray


def inverse(x: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return y of x's shape with x @ y = 1 for each matrix. Raises ZeroDivisionError for a singular one."""
    matrices = x.reshape(-1, *x.shape[-2:])
    y: NDArray[np.floating] = np.array([_invert(m.astype(np.longdouble)) for m in matrices], np.longdouble)
    return y.reshape(x.shape).astype(x.dtype)


def _invert(matrix: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    size = len(matrix)
    rows = np.concatenate([matrix, np.eye(size, dtype=np.longdouble)], axis=1)
    for column in range(size):
        pivot = column + int(np.abs(rows[column:, column]).argmax())
        if rows[pivot, column] == 0:
            raise ZeroDivisionError("a matrix is singular")
        rows[[column, pivot]] = rows[[pivot, column]]
        rows[column] /= rows[column, column]
        others = np.arange(size) != column
        rows[others] -= rows[others, column : column + 1] * rows[column]
    return rows[:, size:]
