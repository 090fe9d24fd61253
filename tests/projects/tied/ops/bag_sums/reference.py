"""Sums over bags of rows in NumPy."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def bag_sums(
    x: Floats, offsets: NDArray[np.int32], weight: Floats | None, codes: tuple[NDArray[np.uint8], ...], *, limit: float
) -> Floats:
    rows = x if weight is None else x * weight[:, None]
    ends = [*offsets[1:], len(x)]
    y = np.zeros((len(offsets), x.shape[1]))
    for bag, first in enumerate(offsets):
        y[bag] = rows[first : ends[bag]].sum(axis=0)
    for code in codes:
        y = y + code[:, None]
    return y
