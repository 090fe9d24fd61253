from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def pick_codes(table: Array, index: Array) -> tuple[Array, Array]:
    found = table[index.astype(np.int64)] if index.size else table[:0]
    kept = found.astype(np.int64) != 0
    return found[kept], index[kept]
