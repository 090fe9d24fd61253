"""Tensors with the declared memory layout of a case: the same values with other strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from opmatrix.errors import RegisterError
from opmatrix.spec import MemoryLayout
from opmatrix.testdata.arrays import Array


def strided(array: Array, layout: MemoryLayout) -> torch.Tensor:
    """Return a new tensor with the values of `array`.

    Raises RegisterError for "expanded" if the values differ along every axis.
    """
    return _LAYOUTS[layout](torch.from_numpy(array.copy()))


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """Swap the last two axes in memory."""
    return tensor.mT.contiguous().mT if tensor.dim() >= 2 else tensor


def _flipped(tensor: torch.Tensor) -> torch.Tensor:
    """Reverse the order of all axes in memory; torch has no negative strides."""
    axes = tuple(reversed(range(tensor.dim())))
    return tensor.permute(axes).contiguous().permute(axes)


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Take every second element of a larger tensor, from an offset; the others are NaN, the largest number, or true."""
    if tensor.dim() == 0:
        return tensor
    dtype = tensor.dtype
    fill = float("nan") if dtype.is_floating_point else dtype == torch.bool or torch.iinfo(dtype).max
    view = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), fill)[..., 1::2]
    view.copy_(tensor)
    return view


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    """Give the first axis along which all values are equal the stride 0."""
    for axis, size in enumerate(tensor.shape):
        first = tensor.narrow(axis, 0, min(size, 1))
        if size > 1 and torch.equal(first.expand_as(tensor), tensor):
            return first.clone().expand_as(tensor)
    raise RegisterError(
        f"layout 'expanded' for a tensor of shape {tuple(tensor.shape)}: along no axis are its numbers the same. "
        f"Give it by Values that repeat, or choose another layout"
    )


_LAYOUTS: Mapping[MemoryLayout, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda tensor: tensor,
    "transposed": _transposed,
    "sliced": _sliced,
    "expanded": _expanded,
    "flipped": _flipped,
}
