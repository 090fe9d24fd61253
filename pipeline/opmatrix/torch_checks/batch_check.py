"""Test that an operator treats the indices of `TorchOp.batch` one by one: a call with one of them gives its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from opmatrix.declaration.batch_axes import batch_axes
from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.size_expressions import FURTHER
from opmatrix.declaration.torch_signature import attribute_values, dtype_of, is_off
from opmatrix.spec import Model, OpSpec
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import compare
from opmatrix.torch_library.call import CALL_ERRORS

Call = Callable[[Sequence[Array]], Sequence[Array]]


def mixed(spec: OpSpec, model: Model, arrays: Sequence[Array], outputs: Sequence[Array], call: Call) -> str:
    """Return how the outputs of a few indices differ from those of a call with one index alone, or ""."""
    batch = batch_axes(spec)
    if batch is None:
        return ""
    names = [feed.part.name for feed in graph_inputs(spec, model, model.cases[0])]
    places = [batch.inputs.get(name) for name in names]
    length = _length(spec, names, places, arrays, is_added=batch.is_added)
    declared = spec.torch.batch if spec.torch else ""
    for index in dict.fromkeys((0, 1, length // 2, length - 1)) if length > (not batch.is_added) else ():
        if not 0 <= index < length:
            continue
        one = [_taken(a, at, index, is_added=batch.is_added) for a, at in zip(arrays, places, strict=True)]
        try:
            alone = call(one)
        except CALL_ERRORS as error:
            return f"batch={declared!r} of TorchOp is wrong: the kernel rejects index {index} alone: {error}"
        for output, whole, at, actual in zip(spec.outputs, outputs, batch.outputs, alone, strict=True):
            if is_off(spec, output, attribute_values(spec, model)):
                continue
            part = _taken(whole, at, index, is_added=batch.is_added)
            tolerance = spec.tolerances["custom"][dtype_of(output.type, model.types)]
            if not (found := compare(part, actual, tolerance=tolerance)).ok:
                return (
                    f"batch={declared!r} of TorchOp is wrong: {output.name} at index {index} differs from a call with "
                    f"this index alone: {found}. The kernel mixes indices: remove batch, or correct the "
                    "kernel"
                )
    return ""


def _length(
    spec: OpSpec, names: Sequence[str], places: Sequence[int | None], arrays: Sequence[Array], *, is_added: bool
) -> int:
    """Return how many indices the batch has: for "...", along its first axis, 0 where it has none."""
    dims = {part.name: part.dims for part in spec.inputs if part.same_as is None}
    for name, at, array in zip(names, places, arrays, strict=True):
        if at is None or name not in dims:
            continue
        if is_added and array.ndim < len(dims[name] or (FURTHER,)):
            return 0
        return int(array.shape[at])
    return 0


def _taken(array: Array, at: int | None, index: int, *, is_added: bool) -> Array:
    if at is None:
        return array
    return np.asarray(np.take(array, index if is_added else [index], axis=at))
