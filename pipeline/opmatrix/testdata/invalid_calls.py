"""Derive the calls that a declaration forbids: a case with one wrong argument. Made in torch and in ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import case_arguments
from opmatrix.declaration.size_expressions import size_owners
from opmatrix.declaration.torch_signature import DTYPES, dtype_of, is_required
from opmatrix.spec import Attribute, AttributeValue, DType, Input, Model, OpSpec, given
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.case_arrays import case_arrays, described, elements
from opmatrix.testdata.numpy_reference import Argument

ELEMENTS = 4096  # of a tensor of the valid call, at most
# The first two that an input does not take are tried on it.
_DTYPES: Sequence[DType] = ("float16", "int32", "bool", "int64", "float64", "float32")


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments of a call: one per input, and the attributes of `model`."""

    model: Model
    inputs: tuple[Argument, ...]


@dataclass(frozen=True, kw_only=True)
class InvalidCall:
    """A call in which `part` is wrong; `found` is its dtype, shape or value as printed."""

    kind: Literal["dtype", "rank", "size", "value"]
    part: Input | Attribute
    found: str
    call: Call

    def __str__(self) -> str:
        return f"{self.kind} of {self.part.name}: {self.found}"


def valid_call(operator: Operator) -> Call:
    """Return the call of the first small case among those with the most input tensors."""
    spec = operator.spec
    candidates = [
        (m, c)
        for m in operator.models
        if not m.unsupported
        for c in m.cases
        if all(0 < n <= ELEMENTS for n in elements(c)) and described(c)
    ]
    model, case = max(candidates, key=lambda found: sum(len(given(found[1], i.name)) for i in spec.inputs))
    return Call(model=model, inputs=tuple(case_arguments(spec, case, case_arrays(spec, model, case))))


def invalid_calls(operator: Operator) -> Iterator[InvalidCall]:
    """Yield calls that differ from a valid one in one argument, which the declaration forbids."""
    call = valid_call(operator)
    for index, part in enumerate(operator.spec.inputs):
        argument = call.inputs[index]
        array = (argument or (None,))[-1] if isinstance(argument, tuple) else argument  # the last one of a variadic
        if array is None:
            continue
        for dtype in _wrong_dtypes(operator.spec, part, call.model):
            with np.errstate(all="ignore"):
                changed = array.astype(dtype)
            yield InvalidCall(kind="dtype", part=part, found=dtype, call=_changed(call, index, changed))
        for kind, shape in _wrong_shapes(operator.spec, part, array.shape):
            changed = np.resize(array, shape)
            yield InvalidCall(kind=kind, part=part, found=str(shape), call=_changed(call, index, changed))
    for attribute in operator.spec.attributes:
        for item, value in _wrong_values(attribute):
            model = replace(call.model, attributes={**call.model.attributes, attribute.name: value})
            found = f"{item:g}" if isinstance(item, float) else str(item)
            yield InvalidCall(kind="value", part=attribute, found=found, call=replace(call, model=model))


def _changed(call: Call, index: int, array: Array) -> Call:
    inputs = list(call.inputs)
    before = inputs[index]
    inputs[index] = (*before[:-1], array) if isinstance(before, tuple) else array
    return replace(call, inputs=tuple(inputs))


def _wrong_dtypes(spec: OpSpec, part: Input, model: Model) -> list[DType]:
    allowed = spec.types.get(part.type) or (dtype_of(part.type, model.types),)
    wrong = [dtype for dtype in _DTYPES if dtype not in allowed][:2]
    leader = next((i for i in spec.inputs if is_required(i) and i.type == part.type), part)
    if part.type in spec.types and leader is not part:
        wrong += [dtype for dtype in allowed if dtype != model.types[part.type]][:1]
    assert set(wrong) <= set(DTYPES)
    return wrong


def _wrong_shapes(
    spec: OpSpec, part: Input, shape: tuple[int, ...]
) -> Iterator[tuple[Literal["rank", "size"], tuple[int, ...]]]:
    if part.same_as is not None:
        yield "rank", (*shape, 1)
        yield "size", (shape[0] + 1, *shape[1:])
    if part.dims is None:
        return
    fixed = [dim for dim in part.dims if dim != "..."]
    if len(fixed) == len(part.dims):
        yield "rank", (*shape, 1)
    if fixed:
        yield "rank", shape[: len(fixed) - 1]
    owners = size_owners(spec)
    for axis, dim in enumerate(fixed):
        if isinstance(dim, int) or owners.get(dim, (part.name, axis)) != (part.name, axis):
            yield "size", (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])


def _wrong_values(attribute: Attribute) -> Iterator[tuple[Any, AttributeValue]]:
    """Yield a wrong item and the attribute's value with it: the item itself, or a list that begins with it."""
    kind = attribute.kind.removesuffix("s")
    items: list[Any] = []
    if kind in ("float", "int"):
        number = float if kind == "float" else int
        beyond = ((attribute.minimum, -1), (attribute.maximum, 1))
        items = [number(limit) + step for limit, step in beyond if limit is not None]
        items = [math.nan, *items] if items and kind == "float" else items
    elif kind == "string" and attribute.allowed:
        items = [f"no_such_{attribute.allowed[0]}"]
    rest = attribute.default[1:] if isinstance(attribute.default, tuple) else ()
    for item in items:
        yield item, (item, *rest) if attribute.kind.endswith("s") else item
