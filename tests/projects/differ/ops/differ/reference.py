"""Two differences in NumPy."""

import numpy as np
from numpy.typing import NDArray


def differ(x: NDArray[np.floating], y: NDArray[np.floating]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    with np.errstate(all="ignore"):
        return x - y, y - x
