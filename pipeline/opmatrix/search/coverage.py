"""What the random inputs of an operator try, and why that is too little where a search is weak, with the remedy."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from opmatrix.basics.errors import many
from opmatrix.declaration.load import Operator
from opmatrix.search.drawn import Drawn
from opmatrix.search.shapes import FURTHER_AXES, SIZES, reorders
from opmatrix.sizes.expressions import FURTHER, terms
from opmatrix.sizes.rules import checked_axes, declared_sizes, input_of, size_items
from opmatrix.spec import Attribute, Case, OpSpec, shape_of, tensors_of

NEW_SHAPES = 30
REFUSED = 0.5
SLOW = 0.5
VALUES = 8

_NUMBER = re.compile(r"[-+]?\d[\d.e+-]*|\[.*?\]|\(.*?\)")


def measure(operator: Operator, drawn: Drawn) -> dict[str, Any]:
    """Return what was drawn, as a result of a check record; "weak" lists what is too little."""
    tried = drawn.cases
    accepted = [one for one in tried if one.expected is not None]
    shapes = {_shapes(operator, one.model.cases[0]) for one in accepted}
    new = shapes - _known_shapes(operator)
    attributes = {}  # how many values that no case has
    not_tried = {}  # the values that only inputs have for which the reference was too slow
    for a in operator.spec.attributes:
        values = {one.model.attributes.get(a.name) for one in accepted}
        attributes[a.name] = len(values - _seen(operator, a) - {None})
        slow = dict.fromkeys(model.attributes.get(a.name) for model in drawn.too_slow)
        if only := [value for value in slow if value is not None and value not in values]:
            not_tried[a.name] = only
    return {
        "check": "search",
        "examples": len(tried),
        "refused": len(tried) - len(accepted),
        "new_shapes": len(new),
        "attributes": attributes,
        "dtypes": dict(Counter(" ".join(one.model.types.values()) for one in accepted)),
        "absent": {
            part.name: sum(not tensors_of(one.model.cases[0], part.name) for one in accepted)
            for part in operator.spec.inputs
            if part.optional
        },
        "large": [sum(array.size for array in one.arrays) for one in accepted if one.large],
        "dropped": dict(drawn.dropped),
        "not_tried": not_tried,
        "weak": [*_weak(operator, drawn, len(new), attributes)],
    }


def _weak(operator: Operator, drawn: Drawn, new: int, attributes: Mapping[str, int]) -> Iterator[str]:
    tried, slow = drawn.cases, len(drawn.too_slow)
    refusals = Counter(_NUMBER.sub("...", one.refusal) for one in tried if one.expected is None)
    refused, why = refusals.total(), ""
    for reason, count in refusals.most_common(1):
        why = f" The most frequent reason ({count} times): {reason}."
    if refused > REFUSED * len(tried):
        yield (
            f"the reference rejects {refused} of {len(tried)} random inputs ({refused / len(tried):.0%}), more than "
            f"{REFUSED:.0%}.{why} Declare what it requires: sizes in dims and same_as, limits of attributes and inputs"
        )
    accepted = (one.arrays[0].shape for one in tried if one.expected is not None)
    if operator.spec.elementwise and not any(map(reorders, accepted)):
        yield (
            "no random input has four or five axes with several channels and several pixels, so that elementwise=True "
            "is not tested. Add a case of such a shape, or remove it"
        )
    if slow > SLOW * (total := slow + len(tried)):
        yield (
            f"the reference is too slow for {slow} of {total} random inputs ({slow / total:.0%}), more than "
            f"{SLOW:.0%}. Declare a lower maximum of the attributes that are numbers of loops, or let "
            "reference.py compute without loops in Python"
        )
    if new < (wanted := min(NEW_SHAPES, math.ceil(0.9 * (_possible(operator) - len(_known_shapes(operator)))))):
        yield (
            f"{many(new, 'shape')} of accepted inputs that no case has, fewer than {wanted}.{why} Declare what ties "
            "the sizes of the inputs (dims, same_as), or add cases of other shapes"
        )
    for attribute in operator.spec.attributes:
        seen = _seen(operator, attribute)
        others = _range(operator.spec, attribute) + attribute.optional - len(seen)
        wanted = VALUES if others >= VALUES else (others + 1) // 2  # the reference may refuse some
        if attributes[attribute.name] < wanted:
            yield (
                f"attribute {attribute.name!r}: {many(attributes[attribute.name], 'value')} that no case has, fewer "
                f"than {wanted}. Widen minimum, maximum or allowed, or correct them where the reference rejects values "
                "that they allow"
            )


def _shapes(operator: Operator, case: Case) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(tuple(map(shape_of, tensors_of(case, part.name))) for part in operator.spec.inputs)


def _known_shapes(operator: Operator) -> set[Any]:
    return {_shapes(operator, case) for model in operator.models for case in model.cases}


def _possible(operator: Operator) -> int:
    parts = operator.spec.inputs
    if any("..." in part.dims if part.dims is not None else part.same_as is None for part in parts):  # of any rank
        return 10**6
    names = {t.key for part in parts for dim in part.dims or () for t in terms(dim) if t.kind in ("name", "item")}
    given_or_not: int = math.prod(2 if part.optional else 3 if part.variadic else 1 for part in parts)
    combinations: int = len({*SIZES}) ** len(names)
    return min(10**6, combinations * given_or_not)


def _most_axes(spec: OpSpec, name: str) -> int:
    dims = declared_sizes(spec, input_of(spec, name))
    return sum(FURTHER_AXES if dim == FURTHER else 1 for dim in dims)


def _seen(operator: Operator, attribute: Attribute) -> set[Any]:
    values = [attribute.default, *(model.attributes.get(attribute.name) for model in operator.models)]
    return {value for value in values if value is not None or attribute.optional}


def _range(spec: OpSpec, attribute: Attribute) -> int:
    """Return how many values the declaration allows, at most 10^6; 0 for any string, because none is drawn."""
    kind, low, high = attribute.kind, attribute.minimum, attribute.maximum
    ranks = [_most_axes(spec, name) for name, at in checked_axes(spec) if at == attribute.name]
    if ranks:  # an axis, from both ends
        return 2 * min(ranks)
    if kind == "ints" and attribute.name in size_items(spec) and low is not None and high is not None:
        values: int = (math.floor(high) - math.ceil(low) + 1) ** size_items(spec)[attribute.name]
        return min(10**6, values)
    if attribute.allowed is not None:
        return len(attribute.allowed)
    if kind in ("string", "tensor"):
        return 0
    if kind == "bool":
        return 2
    if low is None or high is None or kind.endswith("s"):
        return 1 if low is not None and low == high else 10**6
    return math.floor(high) - math.ceil(low) + 1 if kind == "int" else 10**6 if low < high else 1
