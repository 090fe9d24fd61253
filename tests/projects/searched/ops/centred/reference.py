"""Products in NumPy."""

import numpy as np


def centred(x: np.ndarray, w: np.ndarray, *, with_sum: bool) -> tuple[np.ndarray, np.ndarray]:
    few = np.clip(x, -9, 9)
    with np.errstate(all="ignore"):
        return x * w, few.sum(-1) if with_sum else np.zeros(0, x.dtype)
