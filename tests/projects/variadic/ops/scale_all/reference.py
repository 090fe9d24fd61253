"""Scaled tensors in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]


def scale_all(xs: tuple[Floats, ...], *, scale: float) -> list[Floats]:
    with np.errstate(all="ignore"):  # infinity times 0
        return [x * x.dtype.type(scale) for x in xs]
