"""A deformable convolution in NumPy."""

import itertools

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def deform_conv(
    x: Floats, weight: Floats, offset: Floats, mask: Floats | None, bias: Floats | None,
    *, groups: int, offset_groups: int, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...],
) -> Floats:  # fmt: skip
    samples, channels = x.shape[:2]
    (maps, per_group, *taps), sizes = weight.shape, offset.shape[2:]
    if channels % offset_groups:
        raise ValueError(f"{channels} channels in {offset_groups} groups of offsets")
    moved = offset.reshape(samples, offset_groups, *taps, 2, *sizes)
    factor = None if mask is None else mask.reshape(samples, offset_groups, *taps, *sizes)
    y = (
        np.zeros((samples, maps, *sizes))
        if bias is None
        else np.broadcast_to(bias[:, None, None], (samples, maps, *sizes)).copy()
    )
    with np.errstate(all="ignore"):
        for sample, channel, i, j in itertools.product(range(samples), range(channels), *map(range, taps)):
            at = channel // (channels // offset_groups)
            rows = np.arange(sizes[0])[:, None] * stride[0] - padding[0] + i * dilation[0] + moved[sample, at, i, j, 0]
            columns = np.arange(sizes[1]) * stride[1] - padding[1] + j * dilation[1] + moved[sample, at, i, j, 1]
            values = between_pixels(x[sample, channel], rows, columns)
            if factor is not None:
                values = values * factor[sample, at, i, j]
            group = channel // per_group
            own = slice(group * (maps // groups), (group + 1) * (maps // groups))
            y[sample, own] += weight[own, channel % per_group, i, j, None, None] * values
    return y


def between_pixels(image: Floats, rows: Floats, columns: Floats) -> Floats:
    """Return the values at places between pixels; outside of the image is 0, and so is what is at no number."""
    height, width = image.shape
    inside = (rows > -1) & (rows < height) & (columns > -1) & (columns < width)
    padded = np.pad(image, 1)
    row, column = np.where(inside, rows, 0), np.where(inside, columns, 0)
    above, left = np.floor(row).astype(int), np.floor(column).astype(int)
    down, right = row - above, column - left
    above, left = above + 1, left + 1
    below, beyond = np.minimum(above + 1, height + 1), np.minimum(left + 1, width + 1)
    found = (padded[above, left] * (1 - right) + padded[above, beyond] * right) * (1 - down)
    found = found + (padded[below, left] * (1 - right) + padded[below, beyond] * right) * down
    return np.where(inside, found, 0.0)
