"""Pixels to channels in NumPy; int64 wraps around."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def unshuffle(x: Ints, factors: Ints, values: Ints | None, edges: Ints | None, *, r: int, count: int) -> Ints:
    samples, channels, height, width = x.shape
    blocks = x.reshape(samples, channels, height // r, r, width // r, r).transpose(0, 1, 3, 5, 2, 4)
    with np.errstate(over="ignore"):
        y = blocks.reshape(samples, channels * r * r, height // r, width // r) * factors.sum()
        if values is not None:
            y = y + values.sum()
        if edges is not None and values is not None:
            y = y + edges[len(values)]
        elif edges is not None:
            y = y + edges.sum()
    return y
