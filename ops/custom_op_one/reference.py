"""The sum in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def custom_op_one(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Return z of the shape of both: x + y; integers wrap around."""
    with np.errstate(all="ignore"):
        z: NDArray[Any] = np.add(x, y)
        return z
