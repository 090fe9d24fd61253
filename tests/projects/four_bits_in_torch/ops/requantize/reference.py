from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def requantize(w: Array, offset: Array | None, *, factor: int) -> tuple[Array, Array, Array]:
    total = w.astype(np.int64) * factor - (0 if offset is None else offset.astype(np.int64)[:, None])
    return np.clip(total, -8, 7), total.astype(np.float64) / 4, 15 - total % 16
