"""Soft capping in NumPy."""

import numpy as np


def soft_cap(x: np.ndarray, scale: np.ndarray, shift: np.ndarray | None, *, cap: float) -> np.ndarray:
    exact = np.result_type(x, np.float64).type
    bent = x.astype(exact) * scale.astype(exact)
    if shift is not None:
        bent = bent + shift.astype(exact)
    return (cap * np.tanh(bent / cap)).astype(x.dtype)
