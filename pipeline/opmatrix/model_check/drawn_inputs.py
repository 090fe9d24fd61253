"""Draw the inputs of a model: choose its open sizes, and random values. Imports NumPy and onnx alone."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import cast

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from opmatrix.declaration.torch_signature import onnx_kind, onnx_name
from opmatrix.declaration.value_rules import known_numbers
from opmatrix.errors import DataError, UsageError, did_you_mean
from opmatrix.model_check.custom_nodes import attribute_value
from opmatrix.model_check.graph_walk import spec_of
from opmatrix.model_check.type_text import format_type
from opmatrix.spec import DType, OpSpec, Random
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.dtypes import kind
from opmatrix.testdata.ruled_values import random_values

MOST_DRAWN = 2**26  # elements of one input, in 0.5 GB as they are drawn
_ELEMENTS = {*TensorProto.DataType.values()} - {TensorProto.UNDEFINED}
# Sizes of open axes that are tried in turn until the model computes: of the last two axes of images, and of the last
# axis of other inputs, for which the first try is 2, 3 and so on. All other open axes are 1. 512 and 576 are windows of
# audio.
_IMAGES = ((64, 64), (224, 224), (48, 192), (48, 320), (640, 640))
_LENGTHS = tuple((size, size) for size in (16, 64, 128, 256, 512, 576, 1024, 2048))

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Random inputs, their shapes, and the sizes chosen for named axes."""

    inputs: Mapping[str, Array]
    sizes: Mapping[str, int]

    @property
    def shapes(self) -> Shapes:
        return {name: array.shape for name, array in self.inputs.items()}


def draw(
    wanted: Sequence[ValueInfoProto], given: Shapes, model: ModelProto, operators: Sequence[OpSpec]
) -> Iterator[Drawn]:
    """Yield inputs of the shapes in `given`, and of further sizes for each open axis, the most likely ones first.

    Values obey the rules of the `operators` that take them. Raises UsageError where nothing can be drawn.
    """
    _require_known(given, wanted)
    seen: list[Shapes] = []
    for pair in _pairs(wanted):
        sizes: dict[str, int] = {}
        _bind(given, wanted, sizes)
        shapes = {v.name: given[v.name] if v.name in given else _shape(v, sizes, pair) for v in wanted}
        if shapes in seen:
            continue
        seen.append(shapes)
        try:
            arrays = {value.name: _array(value, shapes[value.name]) for value in wanted}
        except UsageError:
            if seen[1:]:  # too large with these sizes
                return
            raise
        for node in model.graph.node:
            if spec := spec_of(node, operators):
                arrays |= _obeying(node, spec, arrays, model)
        yield Drawn(inputs=arrays, sizes={name: size for name, size in sizes.items() if _is_name(name)})


def _pairs(wanted: Sequence[ValueInfoProto]) -> list[tuple[int, int] | None]:
    """Return the sizes to try; None: 2, 3 and so on by name. An image of that size would be smaller than a kernel."""
    image = any(_is_image(value) for value in wanted)
    return [*_IMAGES, None] if image else [None, *_LENGTHS]


def _is_image(value: ValueInfoProto) -> bool:
    """Return whether an input is a batch of images with one, three or four channels and an open size."""
    dims = value.type.tensor_type.shape.dim
    return len(dims) == 4 and dims[1].dim_value in (1, 3, 4) and any(d.dim_value <= 0 for d in dims[2:])


def _is_name(name: str) -> bool:
    return name.isidentifier()


def _bind(given: Shapes, wanted: Sequence[ValueInfoProto], sizes: dict[str, int]) -> None:
    """Set the named axes whose sizes follow from the given shapes."""
    for value in wanted:
        for dim, size in zip(value.type.tensor_type.shape.dim, given.get(value.name, ()), strict=False):
            if dim.dim_param:
                sizes[dim.dim_param] = size


def _shape(value: ValueInfoProto, sizes: dict[str, int], pair: tuple[int, int] | None) -> tuple[int, ...]:
    """Return a shape, and add the sizes of its named axes to `sizes`."""
    if not value.type.HasField("tensor_type"):
        raise UsageError(
            f"input {value.name!r} is no tensor but {format_type(value.type)}: what it takes cannot be drawn"
        )
    dims = value.type.tensor_type.shape.dim
    if any(d.dim_value < -1 for d in dims):
        raise UsageError(
            f"input {value.name!r} has a size below 0: {[d.dim_value for d in dims]}. Export the model again"
        )
    shape = []
    for axis, dim in enumerate(dims):
        inner = (axis - len(dims) + 2 if axis > 1 else -1) if len(dims) > 3 else (1 if axis == len(dims) - 1 else -1)
        chosen = (pair[inner] if inner >= 0 else 1) if pair else 2
        if dim.dim_param:
            shape.append(sizes.setdefault(dim.dim_param, chosen if pair else 2 + len(sizes)))
        else:  # some exporters write -1 for an open axis
            shape.append(dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else chosen)
    return tuple(shape)


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
