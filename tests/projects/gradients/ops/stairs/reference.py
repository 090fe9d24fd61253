"""The rounded factor in NumPy."""

import numpy as np


def stairs(x: np.ndarray, at: np.ndarray, *, edge: float) -> np.ndarray:
    return (np.ceil(at * edge) * x).astype(x.dtype)
