"""Parts of columns in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def split_rows(x: NDArray[Any], *, count: int) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    size = x.shape[1] // count
    return np.array(x.shape[1] - count * size), [x[:, n * size : (n + 1) * size] for n in range(count)]
