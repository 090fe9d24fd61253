from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def add_saturated(x: Array, y: Array | None, others: tuple[Array, ...]) -> tuple[Array, Array, Array]:
    limits = ml_dtypes.iinfo(x.dtype)
    total = x.astype(np.int64)
    for other in (y, *others):
        if other is not None:
            total = total + other.astype(np.int64)
    size = limits.max - limits.min + 1
    wrapped = (total - limits.min) % size + limits.min
    return np.clip(total, limits.min, limits.max), wrapped, 15 - x.astype(np.int64) % 16
