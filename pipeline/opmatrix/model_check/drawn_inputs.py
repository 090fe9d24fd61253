"""Draw the inputs of a model: random values of the sizes that are tried. Imports NumPy and onnx alone."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import cast

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from opmatrix.declaration.torch_signature import onnx_kind, onnx_name
from opmatrix.declaration.value_rules import known_numbers
from opmatrix.errors import DataError, UsageError, did_you_mean
from opmatrix.model_check.custom_nodes import attribute_value
from opmatrix.model_check.graph_walk import spec_of
from opmatrix.model_check.open_sizes import Sizes, dims, size_of
from opmatrix.model_check.type_text import format_type
from opmatrix.spec import DType, OpSpec, Random
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.dtypes import kind
from opmatrix.testdata.ruled_values import random_values

MOST_DRAWN = 2**26  # elements of one input, in 0.5 GB as they are drawn
_ELEMENTS = {*TensorProto.DataType.values()} - {TensorProto.UNDEFINED}

Shapes = Mapping[str, tuple[int, ...]]


def draw(
    wanted: Sequence[ValueInfoProto], given: Shapes, sizes: Sizes, model: ModelProto, operators: Sequence[OpSpec]
) -> dict[str, Array]:
    """Return inputs of the shapes in `given`, else of the sizes of their open axes.

    Values obey the rules of the `operators` that take them. Raises UsageError where nothing can be drawn.
    """
    shapes = {v.name: given[v.name] if v.name in given else _shape(v, sizes) for v in wanted}
    arrays = {value.name: _array(value, shapes[value.name]) for value in wanted}
    for node in model.graph.node:
        if spec := spec_of(node, operators):
            arrays |= _obeying(node, spec, arrays, model)
    return arrays


def require_drawable(given: Shapes, wanted: Sequence[ValueInfoProto]) -> None:
    """Raise UsageError for an input that is no tensor or has a size below 0, and for a shape that does not fit."""
    _require_known(given, wanted)
    for value in wanted:
        if not value.type.HasField("tensor_type"):
            why = f"is no tensor but {format_type(value.type)}: what it takes cannot be drawn"
            raise UsageError(f"input {value.name!r} {why}")
        sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if any(n < -1 for n in sizes):
            raise UsageError(f"input {value.name!r} has a size below 0: {sizes}. Export the model again")


def _shape(value: ValueInfoProto, sizes: Sizes) -> tuple[int, ...]:
    found = [size_of(dim, sizes) for dim in dims(value)]
    return tuple(1 if size is None else max(size, 0) for size in found)


def _require_known(given: Shapes, wanted: Sequence[ValueInfoProto]) -> None:
    """Raise UsageError for a shape of no input, or one that the model does not take."""
    by_name = {value.name: value for value in wanted}
    for name, shape in given.items():
        if name not in by_name:
            has = ", ".join(by_name) or "none"
            raise UsageError(f"--shape: the model has no input {name!r}, it has: {has}{did_you_mean(name, by_name)}")
        tensor = by_name[name].type.tensor_type
        sizes = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim]
        fits = len(sizes) == len(shape) and all(s in (None, n) for s, n in zip(sizes, shape, strict=False))
        if tensor.HasField("shape") and not fits:
            shown = ",".join(map(str, shape))
            raise UsageError(f"--shape {name}={shown}: the model takes {format_type(by_name[name].type)}")


def _array(value: ValueInfoProto, shape: tuple[int, ...]) -> Array:
    element = value.type.tensor_type.elem_type
    if element not in _ELEMENTS:
        why = f"the element type {element}, which is none of ONNX's. Export the model again"
        raise UsageError(f"input {value.name!r} has {why}")
    if (count := math.prod(shape)) > MOST_DRAWN:
        why = f"{count:,} elements, and at most {MOST_DRAWN:,} are drawn. Give them with --inputs FILE.npz"
        raise UsageError(f"input {value.name!r} has {why}")
    return _random_array(value.name, element, shape)


def _random_array(name: str, element: int, shape: tuple[int, ...]) -> Array:
    """Return normally distributed floats, or 0s and 1s for integers, which may be indices.

    An input of one element is often a parameter, and most parameters accept 1.
    """
    random = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    if element == TensorProto.STRING:
        return np.full(shape, "text", dtype=object)
    wanted = helper.tensor_dtype_to_np_dtype(element)
    if int(np.prod(shape)) == 1:
        return np.ones(shape).astype(wanted)
    if kind(wanted) in "iub":
        return random.integers(0, 2, shape).astype(wanted)
    return random.standard_normal(shape).astype(wanted)


def _obeying(node: NodeProto, spec: OpSpec, arrays: Mapping[str, Array], model: ModelProto) -> dict[str, Array]:
    """Return new values for the inputs of the model that an operator takes under a rule which can be computed here."""
    shapes = {i.name: tuple(i.dims) for i in model.graph.initializer} | {n: a.shape for n, a in arrays.items()}
    further = repeat(spec.inputs[-1]) if spec.inputs and spec.inputs[-1].variadic else ()
    taken = [(part, n) for part, n in zip(chain(spec.inputs, further), node.input, strict=False) if n in shapes]
    given = {(a.name, AttributeProto.AttributeType.Name(a.type)): a for a in node.attribute}
    declared = {(onnx_name(a), onnx_kind(a.kind)): a for a in spec.attributes}
    values = {a.name: attribute_value(a, given[key]) for key, a in declared.items() if key in given}
    found = {}
    for part, name in taken:
        if part.values is None or name not in arrays:
            continue
        try:
            numbers = known_numbers(spec, [(p, shapes[n]) for p, n in taken], values)
            tensor, dtype = Random(shape=arrays[name].shape), cast(DType, dtype_name(arrays[name]))
            found[name] = random_values(tensor, part.values, numbers, dtype, seed_of=name)
        except (DataError, ValueError, KeyError):  # the operator refuses the call, or a size of its rule is not known
            continue
    return found
