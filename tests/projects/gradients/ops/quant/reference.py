"""Rounding in NumPy, and the gradient that stands in for its derivative."""

import numpy as np


def quant(x: np.ndarray, *, step: float) -> np.ndarray:
    if step <= 0:
        raise ValueError(f"step must be above 0, got {step}")
    return (np.clip(np.rint(x / step), -2, 2) * step).astype(x.dtype)


def quant_gradient(grad_y: np.ndarray, x: np.ndarray, *, step: float) -> np.ndarray:
    return np.where(abs(x / step) < 2.5, grad_y, 0)
