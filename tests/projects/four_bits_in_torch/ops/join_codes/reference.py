from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def join_codes(table: Array, indices: tuple[Array, ...]) -> Array:
    found = np.concatenate([table[:0], *(table[index.ravel()] for index in indices)])
    return found[found != 0]
