"""The gradients of DCNv2 in NumPy: all taps of all windows at once; pixels collect theirs with numpy.add.at."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[Any]


def modulated_deform_conv_backward(
    grad_y: Tensor, x: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, *,
    stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], groups: int, deform_groups: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return those for x, offset, mask, weight and bias. Raises ValueError for channels that deform_groups does not
    divide."""
    declared, wide = x.dtype, np.promote_types(x.dtype, np.float64)  # as the kernel: in double, rounded once
    grad_y, x, offset, mask, weight = (array.astype(wide) for array in (grad_y, x, offset, mask, weight))
    n, channels, height, width = x.shape
    filters, depth, kh, kw = weight.shape
    out = offset.shape[2:]
    if channels % deform_groups:
        raise ValueError(f"{channels} channels in {deform_groups} deform_groups")
    moved = offset.reshape(n, deform_groups, kh * kw, 2, *out)
    taps = np.indices((kh, kw)).reshape(2, -1)
    rows, columns = (
        (np.arange(out[i]) * stride[i] - padding[i]).reshape((-1, 1) if i == 0 else (1, -1))
        + (taps[i] * dilation[i]).reshape(-1, 1, 1)
        + moved[:, :, :, i]
        for i in range(2)
    )
    inside = ((rows > -1) & (rows < height) & (columns > -1) & (columns < width))[:, :, None]
    factor = mask.reshape(n, deform_groups, 1, kh * kw, *out)
    per_group = (n, deform_groups, channels // deform_groups, kh * kw, *out)
    with np.errstate(all="ignore"):  # infinities and NaN as in IEEE 754
        of_y = grad_y.reshape(n, groups, filters // groups, *out)
        filter_taps = weight.reshape(groups, filters // groups, depth, kh * kw)
        gathered = np.einsum("ngfhw,gfdk->ngdkhw", of_y, filter_taps).reshape(per_group)
        images = x.reshape(n, deform_groups, channels // deform_groups, height, width)
        value, with_row, with_column = (np.zeros(per_group, wide) for _ in range(3))
        grad_x = np.zeros_like(images)
        for where, vertical, horizontal, down, across, there in _corners(rows, columns, inside, height, width):
            found = np.moveaxis(images[where], -1, 2) if height * width else np.zeros(per_group, wide)
            value += np.where(there, vertical * horizontal * found, 0)
            with_row += np.where(there, down * horizontal * found, 0)
            with_column += np.where(there, across * vertical * found, 0)
            if height * width:
                share = np.where(there, gathered * factor * vertical * horizontal, 0)
                np.add.at(grad_x, where, np.moveaxis(share, 2, -1))
        grad_moved = [(np.where(inside, gathered * factor * slope, 0)).sum(2) for slope in (with_row, with_column)]
        grad_offset = np.stack(grad_moved, 3).reshape(offset.shape)
        grad_mask = np.where(inside, gathered * value, 0).sum(2).reshape(mask.shape)
        sampled = (value * factor).reshape(n, groups, depth, kh * kw, *out)
        grad_weight = np.einsum("ngfhw,ngdkhw->gfdk", of_y, sampled).reshape(weight.shape)
        gradients = grad_x.reshape(x.shape), grad_offset, grad_mask, grad_weight, grad_y.sum((0, 2, 3))
        return tuple(gradient.astype(declared) for gradient in gradients)


def _corners(rows: Tensor, columns: Tensor, inside: Tensor, height: int, width: int) -> Any:
    """Yield for each of the four pixels around all positions: its index in the images, its share in both directions,
    the signs of the slopes, and whether it is in the image."""
    rows, columns = np.where(inside[:, :, 0], rows, 0), np.where(inside[:, :, 0], columns, 0)
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    batch, group = np.indices(rows.shape)[:2]
    for down in (0, 1):
        for right in (0, 1):
            row, column = top + down, left + right
            there = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            vertical = rows - top if down else 1 - (rows - top)
            horizontal = columns - left if right else 1 - (columns - left)
            where = (batch, group, slice(None), np.clip(row, 0, height - 1), np.clip(column, 0, width - 1))
            shares = vertical[:, :, None], horizontal[:, :, None]
            yield where, *shares, 2 * down - 1, 2 * right - 1, inside & there[:, :, None]
