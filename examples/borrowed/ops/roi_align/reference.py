"""RoIAlign in NumPy: all samples of a box at once, in the precision of numpy.longdouble."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Exact = NDArray[np.longdouble]


def roi_align(
    input: NDArray[np.floating],
    rois: NDArray[np.floating],
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> NDArray[np.floating]:
    """Return pooled (K, C, pooled_height, pooled_width).

    Raises ValueError for maps without pixels, for the index of a map that there is not, and for bins of more than 4096
    pixels without a sampling_ratio.
    """
    maps, channels, height, width = input.shape
    pooled = np.zeros((len(rois), channels, pooled_height, pooled_width), input.dtype)
    if pooled.size == 0:
        return pooled
    if not (maps and height and width and ((rois[:, 0] > -1) & (rois[:, 0] < maps)).all()):
        raise ValueError(f"maps of shape {input.shape} for boxes of the maps {rois[:, 0]}")
    with np.errstate(all="ignore"):  # NaN and infinities go through as IEEE 754 has it
        for k, (index, *corners) in enumerate(rois.astype(np.float64)):
            left, top, right, bottom = np.array(corners) * spatial_scale - (0.5 if aligned else 0.0)
            y = _positions(top, bottom, pooled_height, sampling_ratio, aligned)
            x = _positions(left, right, pooled_width, sampling_ratio, aligned)
            samples = y.shape[1] * x.shape[1]
            if samples:
                values = _between(input[int(index)].astype(np.longdouble), y.ravel(), x.ravel())
                bins = values.reshape(channels, *y.shape, *x.shape).sum(axis=(2, 4))
                pooled[k] = bins / samples
    return pooled


def _positions(begin: Any, end: Any, bins: int, ratio: int, aligned: bool) -> NDArray[np.float64]:
    """Return where each bin is sampled (bins, samples).

    In float64 and in this order, as it is declared: what is on the map is no matter of tolerance.
    """
    length = end - begin
    if not aligned and length < 1:
        length = np.float64(1)
    bin = length / bins
    wanted = ratio if ratio > 0 else np.ceil(bin)
    if wanted > 4096:
        raise ValueError(f"a box from {begin} to {end} with {wanted} samples along a bin")
    samples = np.arange(int(wanted) if wanted > 0 else 0)
    places: NDArray[np.float64] = begin + np.arange(bins)[:, None] * bin + (samples + 0.5) * bin / wanted
    return places


def _between(maps: Exact, y: NDArray[np.float64], x: NDArray[np.float64]) -> Exact:
    """Return maps (C, H, W) at every y and x (C, Y, X); 0 where a position is more than a pixel outside, or NaN."""
    height, width = maps.shape[1:]
    (y0, y1, dy), (x0, x1, dx) = _neighbours(y, height), _neighbours(x, width)
    total = np.zeros((len(maps), len(y), len(x)), np.longdouble)
    for rows, in_rows in ((y0, 1 - dy), (y1, dy)):
        for columns, in_columns in ((x0, 1 - dx), (x1, dx)):
            total += maps[:, rows][:, :, columns] * np.outer(in_rows, in_columns)
    on_map = np.outer((y >= -1) & (y <= height), (x >= -1) & (x <= width))
    return np.where(on_map, total, np.longdouble(0))


def _neighbours(at: NDArray[np.float64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Exact]:
    """Return the pixels before and behind each position, and how far it is from the first."""
    inside = np.clip(np.nan_to_num(at), 0, size - 1)
    before = inside.astype(np.int64)
    return before, np.minimum(before + 1, size - 1), (inside - before).astype(np.longdouble)
