"""Types in the TorchScript graph, by the shape rules: its exporter infers nothing for a custom op, and rank and sizes
would be lost downstream. Needs torch."""

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
    """Set the type of every output, as far as those of the inputs are known. `inputs` are those that are there, by
    their names; of a variadic one the first. `attributes` may leave out what has its default."""
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
            return _known(inputs[name]) if name in inputs else None
        case FromKernel(rank=rank):
            return (None,) * rank
        case Dims(dims=dims):
            named = {**known, **_named(spec, inputs)}
            return [_size(dim, named) for dim in dims]
    return None


def _size(dim: str | int, named: Mapping[str, int]) -> int | None:
    """Return a size where all that it is made of is static."""
    words = re.findall(r"[A-Za-z_]\w*", str(dim))
    return size(dim, named) if all(word in named for word in words) else None


def _named(spec: OpSpec, inputs: Mapping[str, Value]) -> dict[str, int]:
    """Return what the names of `Input.dims` stand for, where static."""
    found: dict[str, int] = {}
    for part in spec.inputs:
        known = (_known(inputs[part.name]) if part.name in inputs else None) or ()
        for dim, number in zip(part.dims or (), known, strict=False):
            if isinstance(dim, str) and dim != "..." and number is not None:
                found.setdefault(dim, number)
    return found


def _known(value: Value) -> Sizes | None:
    """Return the sizes of a tensor, None for a dynamic one; None where not even the rank is known."""
    sizes: Sizes | None = value.type().varyingSizes()
    return sizes
