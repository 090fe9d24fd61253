"""Draw the values of attributes over all that the declaration allows: alone, the others as in a case, and together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hypothesis.strategies import DrawFn

from opmatrix.declaration.torch_signature import as_float32, attribute_values
from opmatrix.spec import Attribute, AttributeValue, Model, OpSpec
from opmatrix.testdata.attribute_candidates import candidates
from opmatrix.testdata.draw_frame import Frame, pick

_ALONE, _TOGETHER = range(1, 3)


def attributes(draw: DrawFn, frame: Frame) -> dict[str, AttributeValue]:
    """Return a value for each attribute: those of a model, but in most draws other values of one attribute or
    of all. hypothesis shrinks towards those of the model."""
    spec, models = frame.operator.spec, frame.operator.models
    base = attribute_values(spec, frame.template[0] if frame.template else pick(draw, models or (_defaults(spec),)))
    found = {a.name: base[a.name] if a.name in base else candidates(a)[0] for a in spec.attributes}
    if not spec.attributes:
        return found
    how = pick(draw, (0, _ALONE, _TOGETHER, _ALONE, _ALONE))
    if how == _ALONE:
        changed: Sequence[Attribute] = (pick(draw, spec.attributes),)
    else:
        changed = spec.attributes if how == _TOGETHER else ()
    for attribute in changed:
        if how == _TOGETHER and pick(draw, (False, True)):
            continue
        found[attribute.name] = _value(draw, attribute, found[attribute.name], frame.operator.models)
    return found


def comparable(spec: OpSpec, values: Mapping[str, AttributeValue]) -> list[float]:
    """Return the numbers among attributes, as the reference gets them: inputs that are equal to them are drawn, since
    a kernel may compare with them."""
    numbers = []
    for attribute in spec.attributes:
        value = values.get(attribute.name)
        if attribute.kind in ("float", "int") and value is not None and math.isfinite(number := float(value)):  # type: ignore[arg-type]  # of these kinds
            numbers.append(float(as_float32(attribute, number)) if attribute.kind == "float" else number)  # type: ignore[arg-type]
    return numbers


def _defaults(spec: OpSpec) -> Model:
    return Model(name="defaults", cases=())


def _value(draw: DrawFn, attribute: Attribute, base: AttributeValue, models: Sequence[Model]) -> AttributeValue:
    seen = tuple(m.attributes[attribute.name] for m in models if attribute.name in m.attributes)
    if not isinstance(base, tuple):
        others = [value for value in candidates(attribute, seen) if value != base]
        return pick(draw, others or [base])  # type: ignore[no-any-return]
    # The elements of one list in another order; independent elements; rarely another length, which nothing declares.
    how = pick(draw, ("order", "elements", "order", "elements", "elements", "order", "elements", "length"))
    whole = pick(draw, [*dict.fromkeys((base, *seen))])
    if how == "order":
        left = [*whole]
        return tuple(left.pop(pick(draw, range(len(left)))) for _ in whole)
    elements = candidates(attribute, tuple(item for value in (base, *seen) for item in value))  # type: ignore[union-attr]
    count = len(whole) if how == "elements" else pick(draw, (len(whole) + 1, max(0, len(whole) - 1), 0))
    if how == "elements" and all(len({*value}) == len(value) > 1 for value in (base, *seen)) and pick(draw, range(4)):  # type: ignore[arg-type,misc]
        left = [*elements]  # of different ones, as in all cases
        return tuple(left.pop(pick(draw, range(len(left)))) for _ in range(count))
    return tuple(pick(draw, elements) for _ in range(count))
