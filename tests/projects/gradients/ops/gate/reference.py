"""The squares in NumPy."""

import numpy as np


def gate(x: np.ndarray, at: np.ndarray, *, edge: float) -> np.ndarray:
    return np.where(at <= edge, x * x, 0).astype(x.dtype)
