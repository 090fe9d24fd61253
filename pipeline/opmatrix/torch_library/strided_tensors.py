"""Hold numbers in torch with the strides that a case asks for: the same numbers, laid out otherwise in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from opmatrix.errors import RegisterError
from opmatrix.spec import MemoryLayout
from opmatrix.testdata.arrays import Array


def strided(array: Array, layout: MemoryLayout) -> torch.Tensor:
    """Return a tensor of its own with the numbers of `array`.

    Raises RegisterError for "expanded" where no axis holds the same numbers all along.
    """
    return _LAYOUTS[layout](torch.from_numpy(array.copy()))


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The last two axes are swapped in memory."""
    return tensor.mT.contiguous().mT if tensor.dim() >= 2 else tensor


def _flipped(tensor: torch.Tensor) -> torch.Tensor:
    """All axes are swapped in memory, first for last; torch has no negative strides."""
    axes = tuple(reversed(range(tensor.dim())))
    return tensor.permute(axes).contiguous().permute(axes)


def _conspicuous(dtype: torch.dtype) -> float | int | bool:
    if dtype.is_floating_point:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Every other element of a larger tensor, from an offset; what lies between is NaN, the largest number, or true."""
    if tensor.dim() == 0:
        return tensor
    larger = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), _conspicuous(tensor.dtype))
    view = larger[..., 1::2]
    view.copy_(tensor)
    return view


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    """One slice stands for all along the first axis that allows it: its stride is 0."""
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
