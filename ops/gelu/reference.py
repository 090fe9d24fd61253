"""The Gaussian error linear unit in NumPy, by its two definitions."""

import math

import numpy as np
from numpy.typing import NDArray


def gelu(x: NDArray[np.floating], *, approximate: str) -> NDArray[np.floating]:
    """Return x * P(X <= x) for a normally distributed X, or the approximation of it that goes by tanh."""
    exact = x.astype(np.float64)
    if approximate == "tanh":
        y = exact / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (exact + 0.044715 * exact**3)))
    else:
        # erfc rather than 1 + erf, which cancels where x is far below 0.
        y = exact / 2 * np.array([math.erfc(-v / math.sqrt(2)) for v in exact.flat]).reshape(x.shape)
    return np.asarray(y, x.dtype)
