"""The torch tensors of a case, and the arguments that an operator takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from opmatrix.basics.errors import RegisterError
from opmatrix.data.arrays import SMALL, Array, dtype_name, is_small, numpy_dtype
from opmatrix.declaration.models import case_arguments, graph_inputs
from opmatrix.spec import Case, MemoryLayout, Model, OpSpec

# torch before 2.1 has no float8.
_SMALL = {getattr(torch, name): numpy_dtype(name) for name in SMALL if hasattr(torch, name)}

LARGE = 1 << 24  # bytes of an array that is not copied twice


def tensors(spec: OpSpec, model: Model, case: Case, arrays: Sequence[Array]) -> list[torch.Tensor]:
    """Return `arrays`, one for each tensor of the case, with the declared strides."""
    inputs = graph_inputs(spec, model, case)
    return [strided(array, item.tensor.layout) for item, array in zip(inputs, arrays, strict=True)]


def arguments(spec: OpSpec, case: Case, flat: Sequence[torch.Tensor]) -> list[Any]:
    """Return one argument per input: a tensor, None for an absent one, a list for a variadic one."""
    return [list(a) if isinstance(a, tuple) else a for a in case_arguments(spec, case, flat)]


def as_tensor(array: Array) -> torch.Tensor:
    """Return a tensor in the memory of an array. torch.from_numpy does not know the dtypes of ml_dtypes."""
    if is_small(array.dtype):
        return torch.from_numpy(array.view(f"int{8 * array.itemsize}")).view(getattr(torch, dtype_name(array)))
    return torch.from_numpy(array)


def as_array(tensor: torch.Tensor) -> Array:
    """Return an array in the memory of a tensor on the CPU, as `as_tensor` does the other way round."""
    if (dtype := _SMALL.get(tensor.dtype)) is not None:
        array: Array = tensor.view(torch.int16 if dtype.itemsize == 2 else torch.int8).numpy().view(dtype)
        return array
    return tensor.numpy()


def strided(array: Array, layout: MemoryLayout) -> torch.Tensor:
    """Copy `array` to a tensor. Raises RegisterError for "expanded" if the values differ along every axis."""
    if layout == "contiguous" or array.nbytes < LARGE or not array.flags.writeable:
        return laid_out(as_tensor(array.copy()), layout)
    made = laid_out(as_tensor(array), layout)  # a copy, except where a layout changes nothing
    return made.clone() if np.may_share_memory(as_array(made), array) else made


def laid_out(tensor: torch.Tensor, layout: MemoryLayout) -> torch.Tensor:
    """Return a tensor with the same values and other strides. Raises as `strided` does."""
    dtype, shape = tensor.dtype, tensor.shape
    if layout == "transposed" and tensor.dim() >= 2:  # the last two axes in memory
        return tensor.mT.contiguous().mT
    if layout == "flipped":  # the order of all axes in memory; torch has no negative strides
        axes = tuple(reversed(range(tensor.dim())))
        return tensor.permute(axes).contiguous().permute(axes)
    if layout == "sliced" and tensor.dim():
        # Every second element of a larger tensor, from an offset; the others are NaN, the largest number, or true.
        fill = float("nan") if dtype.is_floating_point else dtype == torch.bool or torch.iinfo(dtype).max
        view = tensor.new_full((*shape[:-1], 2 * shape[-1] + 1), fill)[..., 1::2]
        view.copy_(tensor)
        return view
    if layout == "expanded":  # the first axis along which all values are equal has the stride 0
        compared = tensor.float() if dtype in _SMALL else tensor  # torch compares no float8
        for axis, size in enumerate(shape):
            first = compared.narrow(axis, 0, min(size, 1))
            if size > 1 and torch.equal(first.expand_as(compared), compared):
                return tensor.narrow(axis, 0, 1).clone().expand_as(tensor)
        raise RegisterError(
            f"layout 'expanded' for a tensor of shape {tuple(shape)}: along no axis are its numbers the same. "
            f"Give it by Values that repeat, or choose another layout"
        )
    return tensor


def unaligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a contiguous tensor at an address that is aligned for one element alone, as that of x[1:]."""
    if not tensor.is_contiguous():
        return tensor
    whole = tensor.new_empty(tensor.numel() + 1)
    return whole[1:].view(tensor.shape).copy_(tensor)
