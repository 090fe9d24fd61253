"""The sums of windows and the counts in NumPy."""

from typing import Any

import numpy as np


def written(
    x: Any, weight: Any, mask: Any, offset: Any, *, window: Any, stride: Any, factor: float, level: float, start: str,
    flips: Any, axis: int,
) -> Any:  # fmt: skip
    weighted = (x * weight).astype(x.dtype)
    if mask is not None:
        weighted = np.where(mask, weighted, 0).astype(x.dtype)
    count = [max(0, (size - one) // step + 1) for size, one, step in zip(x.shape, window, stride, strict=True)]
    if 0 in count:
        return np.zeros(count, x.dtype), (x > x.dtype.type(level)).sum(axis=axis, keepdims=True).astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(weighted, window)[:: stride[0], :: stride[1]]
    sums = windows.sum(axis=(2, 3), dtype=np.float64) * factor + (start == "one")
    if offset is not None:
        sums = sums + offset[0]
    for dim, flipped in enumerate(flips):
        if flipped:
            sums = np.flip(sums, axis=dim)
    return sums.astype(x.dtype), (x > x.dtype.type(level)).sum(axis=axis, keepdims=True).astype(np.int64)
