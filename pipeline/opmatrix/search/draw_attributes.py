"""Draw the values of attributes over all that the declaration allows: alone, the others as in a case, and together.

Also what all parts of one draw use: the sizes chosen so far, and how to draw one of several values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import strategies
from hypothesis.strategies import DrawFn, SearchStrategy

from opmatrix.declaration.load import Operator
from opmatrix.search.attribute_candidates import STRINGS, candidates
from opmatrix.signature.signature import as_float32, attribute_values
from opmatrix.sizes.expressions import parse, subtracts, terms
from opmatrix.sizes.rules import axes, checked_axes, expressions, once, size_attributes, size_items
from opmatrix.spec import Attribute, AttributeValue, Case, Model, OpSpec


@dataclass(frozen=True)
class Frame:
    """The shared state of one draw: the case whose shapes its tensors take, or the sizes chosen so far."""

    operator: Operator
    template: tuple[Model, Case] | None
    sizes: dict[str, int] = field(default_factory=dict)
    resized: dict[int, int] = field(default_factory=dict)  # sizes of the case that are replaced, by the new ones
    kept: bool = False  # whether values that the case lists are drawn with it
    numbers: list[float] = field(default_factory=list)  # among the attributes


def pick(draw: DrawFn, values: Sequence[Any]) -> Any:
    """Draw one of `values` by its index, since hypothesis would format all values."""
    return values[draw(_below(len(values)))] if len(values) > 1 else values[0]


@cache
def _below(count: int) -> SearchStrategy[int]:
    """Return a strategy for the numbers from 0 on: hypothesis takes as long to make one as to draw from it."""
    return strategies.integers(0, count - 1)


def nested(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Return values in C order as nested tuples."""
    if not shape:
        return values[0]
    step = math.prod(shape[1:])
    return tuple(nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))


SMALL = 16  # of the attributes that sizes are computed from, in most draws
_ALONE, _TOGETHER = range(1, 3)
# Of an int without limits, such as a seed: what 32 bits cannot hold, and the largest.
FAR = (2**31, 2**32 + 1, -(2**31) - 1, 2**63 - 1)
_EXACT = 2**53  # up to which float holds every int


def attributes(draw: DrawFn, frame: Frame) -> dict[str, AttributeValue]:
    """Return a value for each attribute: those of a model, but in most draws other values of one attribute or
    of all. hypothesis shrinks towards those of the model."""
    spec, models = frame.operator.spec, frame.operator.models
    base = attribute_values(
        spec, frame.template[0] if frame.template else pick(draw, models or (Model(name="defaults", cases=()),))
    )
    values = {a.name: base[a.name] if a.name in base else candidates(a)[0] for a in spec.attributes}
    if not spec.attributes:
        return values
    how = pick(draw, (0, _ALONE, _TOGETHER, _ALONE, _ALONE))
    if how == _ALONE:
        changed: Sequence[Attribute] = (pick(draw, spec.attributes),)
    else:
        changed = spec.attributes if how == _TOGETHER else ()
    for attribute in changed:
        if how == _TOGETHER and pick(draw, (False, True)):
            continue
        fixed = attribute.name in size_items(spec)
        now = values[attribute.name]
        if attribute.optional and now is not None and pick(draw, (True, False, False)):
            values[attribute.name] = None
            continue
        values[attribute.name] = _value(draw, attribute, now, frame.operator.models, fixed=fixed)
    used = {at for _, at in checked_axes(spec)} | {*size_attributes(spec)}  # an axis, or in a size
    ints = [a for a in changed if a.kind == "int" and a.name not in used]
    far = [a.name for a in ints if a.allowed is None and a.minimum is None and a.maximum is None]
    if far and pick(draw, range(8)) == 7:
        values[pick(draw, far)] = pick(draw, FAR)
    return values


def before_shapes(draw: DrawFn, frame: Frame, values: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return the attributes with which shapes can be drawn: without those that name an axis, which are drawn with the
    shape, and in most draws with small ones where sizes of inputs, or differences, are computed from them."""
    spec = frame.operator.spec
    axis_names = {at for _, at in checked_axes(spec) if isinstance(at, str)}
    found = {name: value for name, value in values.items() if name not in axis_names}
    if frame.template and axis_names and pick(draw, (True, False)):
        own = attribute_values(spec, frame.template[0])
        found |= {name: own[name] for name in axis_names if name in own}
    alone = {dim for part in spec.inputs for _, dim in axes(part)}  # an attribute that is a size itself: all values fit
    often = {a.name: (True, False) if a.name in alone else (True,) * 5 + (False,) for a in shape_attributes(spec)}
    small = [a for a in shape_attributes(spec) if a.name in found and pick(draw, often[a.name])]
    return found | _limited(draw, small, found, frame.operator.models, SMALL)


def smaller(draw: DrawFn, frame: Frame, values: Mapping[str, AttributeValue], most: int) -> dict[str, AttributeValue]:
    """Return attributes of which those that shapes are computed from are at most `most`, where they can be."""
    limited = [a for a in shape_attributes(frame.operator.spec) if a.name in values]
    return dict(values) | _limited(draw, limited, values, (), most)


def _limited(
    draw: DrawFn, limited: Sequence[Attribute], values: Mapping[str, Any], models: Sequence[Model], most: int
) -> dict[str, AttributeValue]:
    reduced: dict[str, AttributeValue] = {}
    for attribute in limited:
        value = values[attribute.name]
        cases = [v for m in models if (v := m.attributes.get(attribute.name)) is not None]
        seen = tuple(item for v in cases for item in (v if isinstance(v, tuple) else (v,)))
        small = [
            item
            if item <= most or item in seen
            else pick(draw, [v for v in candidates(attribute, seen) if v <= most or v in seen] or [item])
            for item in (value if isinstance(value, tuple) else (value,))
        ]
        reduced[attribute.name] = tuple(small) if isinstance(value, tuple) else small[0]
    return reduced


@once
def shape_attributes(spec: OpSpec) -> list[Attribute]:
    """Return the attributes that sizes of inputs or differences are computed from: few of their values give shapes."""
    inputs = [dim for part in spec.inputs for _, dim in axes(part)]
    used = {t.of for one in expressions(spec) if one in inputs or subtracts(parse(one)) for t in terms(one)}
    return [attribute for name, attribute in size_attributes(spec).items() if name in used]


def comparable(spec: OpSpec, values: Mapping[str, AttributeValue]) -> list[float]:
    """Return the numbers among attributes, as the reference gets them: inputs that are equal to them are drawn, since
    a kernel may compare with them. Not ints that float64 does not hold."""
    numbers = []
    for attribute in spec.attributes:
        value = values.get(attribute.name)
        if isinstance(value, int) and abs(value) > _EXACT:
            continue
        if attribute.kind in ("float", "int") and value is not None and math.isfinite(number := float(value)):  # type: ignore[arg-type]  # of these kinds
            numbers.append(float(as_float32(attribute, number)) if attribute.kind == "float" else number)  # type: ignore[arg-type]  # a number gives a number
    return numbers


def _value(
    draw: DrawFn, attribute: Attribute, base: AttributeValue, models: Sequence[Model], *, fixed: bool
) -> AttributeValue:
    seen = tuple(v for m in models if (v := m.attributes.get(attribute.name)) is not None)
    if attribute.kind == "tensor":
        return pick(draw, [*dict.fromkeys((base, *seen))])  # type: ignore[no-any-return]  # pick() has no type
    if base is None and attribute.kind.endswith("s"):
        base = pick(draw, seen or ((),))
    if not isinstance(base, tuple):
        others = [value for value in candidates(attribute, seen) if value != base]
        ends = [value for value in others if value in (attribute.minimum, attribute.maximum, 0, 1)]
        return pick(draw, ends if ends and pick(draw, (False, False, True)) else others or [base])  # type: ignore[no-any-return]  # pick() has no type
    # The elements of one list in another order; independent elements; all equal, such as a window of 1 by 1; rarely
    # another length, if nothing declares it.
    kinds = ["order", "elements", "equal", "elements", "order", "elements", "equal", "elements", "length"]
    if attribute.kind == "strings":
        kinds = ["length", "elements", "length", "order", "length", "equal", "length"]
    how = pick(draw, kinds[:-1] if fixed else kinds)
    whole = pick(draw, [*dict.fromkeys((base, *seen))])
    if how == "order":
        left = [*whole]
        return tuple(left.pop(pick(draw, range(len(left)))) for _ in whole)
    elements = candidates(attribute, tuple(item for value in (base, *seen) for item in value))  # type: ignore[union-attr]  # an attribute of kind ints or floats has tuples
    if how == "equal":
        return (min(elements) if pick(draw, (True, False)) else pick(draw, elements),) * len(whole)
    lengths = [len(whole) + 1, max(0, len(whole) - 1), 0]
    if attribute.kind == "strings":
        lengths += [2, 3, 1]
        elements = pick(draw, (elements, STRINGS))
    count = len(whole) if how == "elements" else pick(draw, lengths)
    if how == "elements" and all(len({*value}) == len(value) > 1 for value in (base, *seen)) and pick(draw, range(4)):  # type: ignore[arg-type,misc]  # as above
        left = [*elements]  # of different ones, as in all cases
        return tuple(left.pop(pick(draw, range(len(left)))) for _ in range(count))
    return tuple(pick(draw, elements) for _ in range(count))
