"""What `strided` computes, in NumPy."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def strided(
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    factors: NDArray[np.float32],
    counts: NDArray[np.int64],
    pads: NDArray[np.int64] | None,
    first: NDArray[np.float32] | None,
    second: NDArray[np.float32] | None,
    *,
    dim: int,
    groups: int,
    k: int,
    padding: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[NDArray[Any], ...]:
    """Return a convolution along the last axis, and seven outputs whose sizes depend on others."""
    size, taps = x.shape[-1], len(weight) // groups
    length = (size + 2 * padding[0] - dilation[0] * (taps - 1) - 1) // stride[0] + 1
    lead = x.shape[:-1]
    padded = np.zeros((*lead, size + 2 * padding[0]), np.float64)
    padded[..., padding[0] : padding[0] + size] = x
    y = np.zeros((*lead, length), np.float64)
    with np.errstate(all="ignore"):
        for at in range(length):
            for tap in range(taps):
                y[..., at] += padded[..., at * stride[0] + tap * dilation[0]] * float(weight[tap])
        wide = np.moveaxis(x, dim, -1)
        largest = np.maximum.reduce(wide, axis=-1, initial=-np.inf)
        again = np.repeat(x, k, axis=dim)
        numbers = counts[:-1] + (0 if pads is None else np.sum(pads)) + (0 if first is None else first.size)
        numbers = numbers + (0 if second is None else second.shape[1])
        flat = np.tile(numbers, (math.prod(lead), 1))
        every = x.reshape(math.prod(lead), size)
        rows = np.flatnonzero([row.astype(np.float64).sum() > 0 for row in every])
        kept = every[rows].astype(np.float64) * np.diagonal(factors)
        places = np.flatnonzero((wide > 0).any(axis=tuple(range(wide.ndim - 1))))
    return y, largest, again, flat, kept, rows, np.take(x, places, axis=dim), places
