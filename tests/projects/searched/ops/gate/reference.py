"""The threshold in NumPy."""

import numpy as np


def gate(x: np.ndarray, w: np.ndarray, *, threshold: float, times: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.where(x > x.dtype.type(threshold), x * x.dtype.type(times), w[None, :])
