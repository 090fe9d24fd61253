"""Copies in NumPy."""

import numpy as np


def each(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x.copy(), w.copy()
