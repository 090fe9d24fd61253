"""The two residuals in NumPy, in the precision of numpy.longdouble."""

import numpy as np
from numpy.typing import NDArray


def dual_residual(
    x: NDArray[np.floating], y: NDArray[np.floating], *, alpha: float
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return alpha * x - y and alpha * y - x, each of the shape of both."""
    a, b, factor = x.astype(np.longdouble), y.astype(np.longdouble), np.longdouble(alpha)
    with np.errstate(all="ignore"):  # infinities, NaN and what float cannot hold go through as IEEE 754 has it
        return np.subtract(factor * a, b).astype(x.dtype), np.subtract(factor * b, a).astype(y.dtype)
