"""Set the types of a symbolic function's results by the declared shape rules. Needs torch.

The legacy exporter infers nothing for a custom op: rank and sizes would be lost downstream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opmatrix.declaration.size_expressions import attribute_sizes, size
from opmatrix.lowering.graph import Value
from opmatrix.spec import AttributeValue, Dims, FromKernel, OpSpec, Output, SameAs

Sizes = Sequence[int | None]


def set_types(
    spec: OpSpec, inputs: Mapping[str, Value], attributes: Mapping[str, AttributeValue], outputs: Sequence[Value]
) -> None:
    """Set the type of each output, as far as the types of the inputs are known.

    `inputs` has the present inputs by name, the first tensor of a variadic one; `attributes` may omit defaults.
    """
    known = attribute_sizes(spec, attributes)
    for output, value in zip(spec.outputs, outputs, strict=True):
        if (dtype := _dtype(spec, output, inputs)) is not None:
            bare = torch._C.TensorType.get().with_dtype(dtype)
            sizes = _sizes(spec, output, inputs, known)
            value.setType(bare if sizes is None else bare.with_sizes(list(sizes)))


def _dtype(spec: OpSpec, output: Output, inputs: Mapping[str, Value]) -> Any:
    if output.type not in spec.types:
        return getattr(torch, output.type)
    leader = next((inputs[i.name] for i in spec.inputs if i.type == output.type and i.name in inputs), None)
    return None if leader is None else leader.type().dtype()


def _sizes(spec: OpSpec, output: Output, inputs: Mapping[str, Value], known: Mapping[str, int]) -> Sizes | None:
    match output.shape:
        case SameAs(input=name):
            return _tensor_sizes(inputs.get(name))
        case FromKernel(rank=rank):
            return (None,) * rank
        case Dims(dims=dims):
            named = {**known, **_static_sizes(spec, inputs)}
            names = [re.findall(r"[A-Za-z_]\w*", str(dim)) for dim in dims]
            return [
                size(dim, named) if named.keys() >= {*used} else None for dim, used in zip(dims, names, strict=True)
            ]
    return None


def _static_sizes(spec: OpSpec, inputs: Mapping[str, Value]) -> dict[str, int]:
    """Return the static sizes by their names in `Input.dims`."""
    found: dict[str, int] = {}
    for part in spec.inputs:
        for dim, number in zip(part.dims or (), _tensor_sizes(inputs.get(part.name)) or (), strict=False):
            if isinstance(dim, str) and dim != "..." and number is not None:
                found.setdefault(dim, number)
    return found


def _tensor_sizes(value: Value | None) -> Sizes | None:
    """Return the sizes of a tensor, None for a dynamic size; None if it is absent or its rank is unknown."""
    return value.type().varyingSizes() if value is not None else None
