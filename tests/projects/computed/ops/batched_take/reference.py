"""Elements by index in NumPy."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def batched_take(x: Floats, index: NDArray[np.int64], weight: Floats | None) -> Floats:
    found = np.take_along_axis(x, index, -1)
    with np.errstate(all="ignore"):
        return found if weight is None else found * np.moveaxis(weight, 0, -1)
