"""Derive the calls that a declaration forbids: a case with one wrong argument. Made in torch and in ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from opmatrix.basics.errors import DataError, one_line
from opmatrix.data.arrays import Array, dtype_name, numpy_dtype
from opmatrix.data.case_arrays import case_arrays, described, elements
from opmatrix.data.reference import Argument, tensors, with_each
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments
from opmatrix.project.dtypes import FOUR_BITS
from opmatrix.search.broken_rules import RuleKind, broken, kinds
from opmatrix.search.shapes import most_of_inputs
from opmatrix.signature.signature import attribute_values, dtype_of, is_required
from opmatrix.sizes import rules
from opmatrix.sizes.expressions import terms
from opmatrix.sizes.known import Known
from opmatrix.sizes.values import known_numbers, limit_terms, ruled_inputs
from opmatrix.spec import Attribute, AttributeValue, DType, Input, Model, OpSpec, ValueRule, tensors_of

RULE_KINDS: tuple[RuleKind, ...] = get_args(RuleKind)
# The first two that an input does not take are tried on it.
_DTYPES: Sequence[DType] = ("float16", "int32", "bool", "int64", "float64", "float32")


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments of a call: one per input, and the attributes of `model`. `typed`: the outputs have its dtypes."""

    model: Model
    inputs: tuple[Argument, ...]
    typed: bool = False


@dataclass(frozen=True, kw_only=True)
class InvalidCall:
    """A call in which `part` is wrong; `shown` is its dtype, shape or value."""

    kind: Literal["dtype", "rank", "size", "value"] | RuleKind
    part: Input | Attribute
    shown: str
    call: Call

    def __str__(self) -> str:
        if self.kind in RULE_KINDS:
            return f"{self.part.name} {self.kind}: {self.shown}"
        return f"{self.kind} of {self.part.name}: {self.shown}"


def valid_call(operator: Operator) -> Call:
    """Return the call of the first small case among those with the most input tensors. Raises DataError for none."""
    if call := next(valid_calls(operator), None):
        return call
    raise DataError(f"{operator.name}: no case that runs has 1 to {most_of_inputs(operator.spec)} elements in each "
                    "input, so that no invalid call can be made from it. Add one")  # fmt: skip


def valid_call_fails(operator: Operator, where: str, error: Exception) -> str:
    """Return the message where the call fails of which each forbidden one differs in one argument."""
    return (
        f"{operator.name} in {where} refuses a call of one of its cases, so that each invalid call fails for that "
        f"reason and shows nothing: {one_line(str(error))}"
    )


def valid_calls(operator: Operator) -> Iterator[Call]:
    """Yield the calls of all small cases, those with the most input tensors first."""
    spec = operator.spec
    candidates = [
        (m, c)
        for m in operator.models
        if not m.unsupported
        for c in m.cases
        if all(0 < n <= most_of_inputs(spec) for n in elements(c)) and described(c)
    ]
    candidates.sort(key=lambda candidate: -sum(len(tensors_of(candidate[1], i.name)) for i in spec.inputs))  # stable
    for model, case in candidates:
        yield Call(model=model, inputs=tuple(case_arguments(spec, case, case_arrays(spec, model, case))))


def invalid_calls(operator: Operator) -> Iterator[InvalidCall]:
    """Yield calls that differ from a valid one in one argument, which the declaration forbids."""
    call = valid_call(operator)
    for index, part in enumerate(operator.spec.inputs):
        if not (arrays := last_array(call, index)):
            continue
        (array,) = arrays
        for dtype in _wrong_dtypes(operator.spec, part, call.model):
            if "string" in (dtype, dtype_name(array)):
                changed = np.full(array.shape, "1" if dtype == "string" else 1, numpy_dtype(dtype))
            else:
                with np.errstate(all="ignore"):  # ml_dtypes has no cast from int4 to uint4
                    changed = (array.astype(np.int8) if dtype_name(array) in FOUR_BITS else array).astype(dtype)
            yield InvalidCall(kind="dtype", part=part, shown=dtype, call=_changed(call, index, changed))
        for kind, shape in _wrong_shapes(operator.spec, part, array.shape, call):
            changed = np.resize(array, shape)
            yield InvalidCall(kind=kind, part=part, shown=str(shape), call=_changed(call, index, changed))
    for attribute in operator.spec.attributes:
        for item, value in (*_wrong_values(attribute), *_wrong_for_sizes(operator.spec, attribute, call)):
            model = replace(call.model, attributes={**call.model.attributes, attribute.name: value})
            found = f"{item:g}" if isinstance(item, float) else str(item)
            yield InvalidCall(kind="value", part=attribute, shown=found, call=replace(call, model=model))
    for index, part in enumerate(operator.spec.inputs):
        if part.values is not None:
            yield from _rule_calls(operator, index)


def missing_calls(operator: Operator) -> Iterator[str]:
    """Yield the ways to break a rule that no small case allows, so that `invalid_calls` does not try them."""
    most = most_of_inputs(operator.spec)
    for index, part in enumerate(operator.spec.inputs):
        if (rule := part.values) is None:
            continue
        found = {one.kind for one in _rule_calls(operator, index)}
        possible = {k for call in valid_calls(operator) for a in last_array(call, index) for k in kinds(rule, a)}
        impossible: set[RuleKind] = set()
        if rule.spans and part.dims and isinstance(last := part.dims[-1], int):  # too few elements between the ends
            fewest: Mapping[RuleKind, int] = {"unordered": 4, "repeated": 3, "starting late": 2, "ending early": 2}
            impossible = {kind for kind, number in fewest.items() if last < number}
        if missing := [kind for kind in RULE_KINDS if kind in possible - found - impossible]:
            yield (
                f"{operator.name}: no case with 1 to {most} elements in each input can be changed to one whose "
                f"{part.name} is {' or '.join(missing)}. Add a case with {_needed(rule, missing)}"
            )
        elif not possible:
            yield f"{operator.name}: no case with 1 to {most} elements in each input has {part.name}. Add one"


def _needed(rule: ValueRule, missing: Sequence[RuleKind]) -> str:
    """Return what a case needs so that its values can be changed to ones that break a rule in some ways alone."""
    if not rule.spans or not {"unordered", "repeated", "starting late", "ending early"} & {*missing}:
        return "two different elements along its last axis"
    number = "four" if "unordered" in missing else "three" if "repeated" in missing else "two"
    apart = ", and no other is next to them in value" if rule.unique else ""
    return f"{number} elements along its last axis, of which the first and the last differ{apart}"


def _rule_calls(operator: Operator, index: int) -> Iterator[InvalidCall]:
    """Yield calls that break the rule of an input: in each way, with the first small case in which it can be broken."""
    spec = operator.spec
    part = spec.inputs[index]
    rule = part.values
    assert rule is not None
    tried: set[RuleKind] = set()
    for call in valid_calls(operator):
        shapes = [(i, array.shape) for n, i in enumerate(spec.inputs) for array in last_array(call, n)]
        numbers = known_numbers(spec, shapes, call.model.attributes)
        new: set[RuleKind] = set()
        for array in last_array(call, index):
            for kind, found, changed in broken(rule, numbers, array):
                if kind not in tried:
                    new.add(kind)
                    yield InvalidCall(kind=kind, part=part, shown=found, call=_changed(call, index, changed))
            ways = ((rule.non_empty, False, "no elements"), (rule.spans, True, "no elements along the last axis"))
            for ruled, last, found in ways:
                if ruled and "empty" not in tried and (emptied := _emptied(spec, call, index, last=last)):
                    new.add("empty")
                    yield InvalidCall(kind="empty", part=part, shown=found, call=emptied)
        tried |= new


def last_array(call: Call, index: int) -> list[Array]:
    """Return the tensor of an input in a call, the last one of a variadic input; none where it is absent."""
    return [*tensors(call.inputs[index])[-1:]]


def _emptied(spec: OpSpec, call: Call, index: int, *, last: bool) -> Call | None:
    """Return the call with a size of 0 in an input, and in all others that have this size; None if a rule uses it.

    `last` is for the size of the last axis.
    """
    sized = [rules.axes(rules.input_of(spec, part.same_as or part.name)) for part in spec.inputs]
    used = {term.key for _, rule in ruled_inputs(spec) for term in limit_terms(rule)}
    behind = [array.ndim - 1 for array in last_array(call, index)]
    own = [dim for at, dim in sized[index] if not last or at in (-1, *behind)]
    size = next((dim for dim in own if rules.is_named(spec, dim) and dim not in used), None)
    if size is None:
        return _emptied_alone(spec, call, index, last=last)
    for other, found in enumerate(sized):
        for axis, dim in found:
            if dim == size:
                inputs = list(call.inputs)
                inputs[other] = with_each(inputs[other], partial(np.take, indices=[], axis=axis))
                call = replace(call, inputs=tuple(inputs))
    return call


def _emptied_alone(spec: OpSpec, call: Call, index: int, *, last: bool) -> Call | None:
    """Return the call with a size of 0 in an axis of an input that the declaration leaves free; None without one."""
    part = spec.inputs[index]
    tied = part.same_as or part.further_as or any(part.name in (o.same_as, o.further_as) for o in spec.inputs)
    if tied or not rules.has_further(part):
        return None
    front, back = rules.around(part)
    for array in last_array(call, index):
        if array.ndim > front + back and not (last and back):
            return _changed(call, index, np.take(array, [], axis=-1 if last else front))
    return None


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
    return wrong


def _wrong_shapes(
    spec: OpSpec, part: Input, shape: tuple[int, ...], call: Call
) -> Iterator[tuple[Literal["rank", "size"], tuple[int, ...]]]:
    if part.same_as is not None:
        yield "rank", (*shape, 1)
        yield "size", (shape[0] + 1, *shape[1:])
    if part.dims is None:
        return
    fixed = rules.axes(part)
    if part.further_as is not None:
        front, back = rules.around(part)
        yield "rank", (*shape[:front], 1, *shape[front:])
        if len(shape) > front + back:
            yield "size", (*shape[:front], shape[front] + 1, *shape[front + 1 :])
    if not rules.has_further(part):
        yield "rank", (*shape, 1)
    if fixed:
        yield "rank", shape[: len(fixed) - 1]
    known = rules.definitions(spec)
    values = attribute_values(spec, call.model)
    for at, dim in (*fixed, *Known(spec=spec, shapes={part.name: shape}, attributes=values).sizes_at(part)):
        if rules.is_named(spec, dim) and known[str(dim)][0] == f"{part.name}.shape[{at}]":
            continue  # every size is right, and another input or no input has to follow
        axis = at % len(shape)
        for size in (shape[axis] + 1, 0):
            wrong = (*shape[:axis], size, *shape[axis + 1 :])
            if _is_forbidden(spec, part, wrong, call):
                yield "size", wrong
                break


def _is_forbidden(spec: OpSpec, part: Input, shape: tuple[int, ...], call: Call) -> bool:
    """Return whether an input of a call may not have this shape: whether an axis has another size than its own."""
    arguments = zip(spec.inputs, call.inputs, strict=True)
    shapes = {i.name: array.shape for i, argument in arguments for array in tensors(argument)[:1]}
    if not part.variadic:
        shapes[part.name] = shape
    known = Known(spec=spec, shapes=shapes, attributes=attribute_values(spec, call.model))
    try:
        follow = [term.key for _, dim in rules.axes(part) for term in terms(dim) if term.kind == "name"]
        for name in follow:
            known.size(name)  # raises for one below 0
        return any(known.size(dim) not in (None, shape[at]) for at, dim in (*rules.axes(part), *known.sizes_at(part)))
    except ValueError:
        return True


def _wrong_for_sizes(spec: OpSpec, attribute: Attribute, call: Call) -> Iterator[tuple[Any, AttributeValue]]:
    """Yield an axis that an input lacks, and a list with fewer elements than sizes are computed from."""
    shapes = {i.name: a.shape for i, a in zip(spec.inputs, call.inputs, strict=True) if isinstance(a, np.ndarray)}
    for name, axis in rules.checked_axes(spec):
        if axis == attribute.name:
            yield len(shapes[name]), len(shapes[name])
    value = attribute_values(spec, call.model).get(attribute.name)
    if isinstance(value, tuple) and (count := rules.size_items(spec).get(attribute.name)):
        yield value[: count - 1], value[: count - 1]
        if attribute.name in rules.list_lengths(spec):
            yield (*value, value[0]), (*value, value[0])


def _wrong_values(attribute: Attribute) -> Iterator[tuple[Any, AttributeValue]]:
    """Yield a wrong item and the attribute's value with it: the item itself, or a list that begins with it."""
    kind = attribute.kind.removesuffix("s")
    items: list[Any] = []
    if kind in ("float", "int"):
        number = float if kind == "float" else int
        beyond = ((attribute.minimum, -1), (attribute.maximum, 1))
        items = [number(limit) + step for limit, step in beyond if limit is not None]
        items = [math.nan, *items] if items and kind == "float" else items
        if attribute.allowed and not items:
            items = [max(one for one in attribute.allowed if isinstance(one, int | float)) + 1]
    elif kind == "string" and attribute.allowed:
        items = [f"no_such_{attribute.allowed[0]}"]
    rest = attribute.default[1:] if isinstance(attribute.default, tuple) else ()
    for item in items:
        yield item, (item, *rest) if attribute.kind.endswith("s") else item
