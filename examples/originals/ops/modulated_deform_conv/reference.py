"""DCNv2 in NumPy: all taps of all windows are sampled at once, then summed as a product of matrices."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[Any]


def modulated_deform_conv(
    x: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor | None, *,
    stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], groups: int, deform_groups: int,
) -> Tensor:  # fmt: skip
    """Return y. Raises ValueError for channels that deform_groups does not divide."""
    declared, wide = x.dtype, np.promote_types(x.dtype, np.float64)  # as the kernel: in double, rounded once
    x, offset, mask, weight = (array.astype(wide) for array in (x, offset, mask, weight))
    n, channels, height, width = x.shape
    filters, depth, kh, kw = weight.shape
    out = offset.shape[2:]
    if channels % deform_groups:
        raise ValueError(f"{channels} channels in {deform_groups} deform_groups")
    moved = offset.reshape(n, deform_groups, kh * kw, 2, *out)
    taps = np.indices((kh, kw)).reshape(2, -1)
    at = [
        (np.arange(out[i]) * stride[i] - padding[i]).reshape((-1, 1) if i == 0 else (1, -1))
        + (taps[i] * dilation[i]).reshape(-1, 1, 1)
        + moved[:, :, :, i]
        for i in range(2)
    ]
    images = x.reshape(n, deform_groups, channels // deform_groups, height, width)
    with np.errstate(all="ignore"):  # infinities and NaN as in IEEE 754
        samples = _bilinear(images, *at) * mask.reshape(n, deform_groups, 1, kh * kw, *out)
        samples = samples.reshape(n, groups, depth, kh * kw, *out)
        y = np.einsum("ngdkhw,gfdk->ngfhw", samples, weight.reshape(groups, filters // groups, depth, kh * kw))
        y = y.reshape(n, filters, *out)
        return (y if bias is None else y + bias.reshape(-1, 1, 1)).astype(declared)


def _bilinear(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the value of each image at each position, 0 beyond one row or column around it."""
    height, width = images.shape[-2:]
    inside = (rows > -1) & (rows < height) & (columns > -1) & (columns < width)
    found = np.zeros((*images.shape[:3], *rows.shape[2:]), images.dtype)
    if not height * width:
        return found
    rows, columns = np.where(inside, rows, 0), np.where(inside, columns, 0)
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    batch, group = np.indices(rows.shape)[:2]
    for down in (0, 1):
        for right in (0, 1):
            row, column = top + down, left + right
            there = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            share = (rows - top if down else 1 - (rows - top)) * (columns - left if right else 1 - (columns - left))
            values = images[batch, group, :, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
            found += np.moveaxis(np.where(there[..., None], values, 0) * share[..., None], -1, 2)
    return np.where(inside[:, :, None], found, 0)
