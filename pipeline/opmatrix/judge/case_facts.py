"""Find what the failing cases of an operator have in common, and no passing case has: a size, a dtype, an attribute.

A property counts only if it separates failing from passing cases completely, and if random failing cases would hardly
have one: of all sets of as many cases, properties as simple as the one that is named may describe 1 in 100.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

from opmatrix.search.drawn import DrawnCase
from opmatrix.signature.signature import attribute_values, dtype_of
from opmatrix.sizes.rules import axes, is_named
from opmatrix.spec import Case, Model, OpSpec, shape_of, tensors_of

Value = int | float | str
Properties = Mapping[str, Value]
"""The properties of a case by their names: ``W``, ``x.numel()``, ``epsilon``; numbers have an order."""

_CHANCE = 0.01  # of sets of cases that any property describes
_LEAST = 2  # failing and passing cases
_MOST_FACTS = 2
_SIMPLE = (0, 4)  # of `_Property.order`: one value, or a range with one end
_VALUES = 6  # of a dtype or an attribute, of which some together are a property
_NAMED = 3  # values that are listed


@dataclass(frozen=True, kw_only=True)
class _Property:
    """Cases that one property of the name `of` has: `where` says it, and `right` what the others have. `order`: the
    lowest is best."""

    of: str
    where: str
    right: str
    order: int
    cases: frozenset[int]


def of_case(spec: OpSpec, model: Model, case: Case) -> dict[str, Value]:
    """Return the properties of a case that its description has: no array is made."""
    facts: dict[str, Value] = {name: model.types[name] for name in spec.types if name in model.types}
    shapes = {part.name: [shape_of(tensor) for tensor in tensors_of(case, part.name)] for part in spec.inputs}
    unnamed: dict[str, Value] = {}  # which follow the named sizes
    for part in spec.inputs:
        for shape in shapes[part.name][:1]:
            declared = [(axis % len(shape), dim) for axis, dim in axes(part) if -len(shape) <= axis < len(shape)]
            for axis, dim in declared:
                if is_named(spec, dim):
                    facts.setdefault(str(dim), shape[axis])
            open_axes = [axis for axis in range(len(shape)) if axis not in dict(declared)]
            unnamed |= {f"{part.name}.shape[{axis}]": shape[axis] for axis in open_axes}
            if len(shape) - 1 in open_axes:
                unnamed[f"{part.name}.shape[-1]"] = shape[-1]
    facts |= unnamed
    for name, value in attribute_values(spec, model).items():
        text = repr(value)
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        facts[name] = value if isinstance(value, int | float) and not isinstance(value, bool) else shown
    for part in spec.inputs:
        own = shapes[part.name]
        if part.variadic:
            facts[f"len({part.name})"] = len(own)
        if part.optional:
            facts[part.name] = "given" if own else "absent"
        if own:
            tensor = tensors_of(case, part.name)[0]
            facts[f"{part.name}.layout"] = tensor.layout
            facts[f"{part.name}.numel()"] = sum(map(math.prod, own))
            facts[f"{part.name}.dim()"] = len(own[0])
            if part.type not in spec.types:
                facts[f"{part.name}.dtype"] = dtype_of(part.type, model.types)
    return facts


def of_cases(
    spec: OpSpec, cases: Sequence[tuple[Model, Case]], *, wrong: Sequence[bool], used: Sequence[float | None]
) -> dict[str, Any]:
    """Return what the report shows of all cases of a check, docs/report.md: of each, the properties that differ and
    are numbers, whether it is wrong, and its part of the tolerance; and what the wrong ones have in common."""
    found = [of_case(spec, model, case) for model, case in cases]
    sizes = {
        " = ".join(names): list(values)
        for names, values in _alike(found)
        if all(isinstance(value, int) and value >= 0 for value in values)
    }
    return {
        "cases": [f"{case.name}/{model.name}" for model, case in cases],
        "wrong": [int(one) for one in wrong],
        "tolerance_used": [None if one is None or not math.isfinite(one) else float(f"{one:.3g}") for one in used],
        "sizes": sizes,
        "in_common": in_common(found, wrong),
    }


def in_common_of_drawn(spec: OpSpec, drawn: Sequence[DrawnCase], problem: Callable[[DrawnCase], str]) -> str:
    """Return `in_common` of drawn inputs: those that fail as the first failing one does, and those that pass."""
    found = [(of_case(spec, one.model, one.model.cases[0]), problem(one)) for one in drawn if one.expected is not None]
    kind = next((said.partition(":")[0] for _, said in found if said), "")
    alike = [(case, said) for case, said in found if said.partition(":")[0] in ("", kind)]
    return in_common([case for case, _ in alike], [bool(said) for _, said in alike]).replace(
        " cases; right", " drawn inputs; right"
    )


def in_common(cases: Sequence[Properties], wrong: Sequence[bool]) -> str:
    """Return ``wrong from W = 17 on (5 of 5 cases; right up to W = 16 in 21)``, maybe with a second property of the
    same cases; "" where no property separates wrong from right cases, or chance may be the reason.

    A passing case with an empty input does not count: without elements, none is wrong."""
    sizes = [[value for name, value in case.items() if name.endswith(".numel()")] for case in cases]
    kept = [number for number, found in enumerate(sizes) if wrong[number] or 0 not in found]
    cases = [cases[number] for number in kept]
    failing = frozenset(number for number, one in enumerate(kept) if wrong[one])
    count, passing = len(failing), len(cases) - len(failing)
    if min(count, passing) < _LEAST:
        return ""
    every = [one for names, values in _alike(cases) for one in _properties(" = ".join(names), values, count)]
    found = sorted((one for one in every if one.cases == failing), key=lambda one: one.order)
    as_simple = {one.cases for one in every if found and one.order <= found[0].order}
    if not found or len(as_simple) > _CHANCE * math.comb(len(cases), count):
        return ""
    best = {one.of: one for one in reversed(found)}
    first, *others = (one for one in found if best[one.of] is one and one.order in (found[0].order, *_SIMPLE))
    said = f"wrong {first.where} ({count} of {count} cases; right {first.right} in {passing})"
    return said + "".join(f"; the same cases: {other.where}" for other in others[: _MOST_FACTS - 1])


def _alike(cases: Sequence[Properties]) -> Iterator[tuple[list[str], tuple[Value, ...]]]:
    """Yield the properties that all cases have and that differ, those with equal values together."""
    by_values: dict[tuple[Value, ...], list[str]] = {}
    for name in cases[0] if cases else ():
        if all(name in case for case in cases):
            values = tuple(case[name] for case in cases)
            if len(set(values)) > 1:
                by_values.setdefault(values, []).append(name)
    for values, names in by_values.items():
        sizes = [name for name in names if name.isidentifier()]  # of which elements and indices follow
        yield sizes or names[:1], values


def _properties(name: str, values: Sequence[Value], count: int) -> Iterator[_Property]:
    numbers = [value for value in values if isinstance(value, int | float) and value == value]
    if len(numbers) == len(values):
        return _ranges(name, numbers, count)
    return _of_values(name, [*map(str, values)], count)


def _ranges(name: str, values: Sequence[int | float], count: int) -> Iterator[_Property]:
    known = sorted(set(values))
    order = 4 if name.endswith(")") else 0  # elements and ranks follow from sizes
    for first, low in enumerate(known):
        inside = [number for number, value in enumerate(values) if value >= low]
        high = sorted(values[number] for number in inside)[count - 1] if len(inside) >= count else None
        cases = frozenset(number for number in inside if high is not None and values[number] <= high)
        if high is None or len(cases) != count:
            continue
        begin, end = f"{name} = {_text(low)}", f"{name} = {_text(high)}"
        if name.endswith(".numel()") and high == 0:
            tensor = name.removesuffix(".numel()")
            where, right, more = f"where {tensor} is empty", "where it is not", -order - 1  # before its sizes
        elif len(known) == 2:
            (other,) = {*known} - {low}
            where, right, more = f"where {begin}", f"where {name} = {_text(other)}", 0
        elif high == known[-1]:
            where, right, more = f"from {begin} on", f"up to {name} = {_text(known[first - 1])}", 0
        elif first == 0:
            where = f"where {begin}" if low == high else f"up to {end}"
            right, more = f"from {name} = {_text(known[known.index(high) + 1])} on", 0
        elif low == high:
            where, right, more = f"where {begin}", "otherwise", 1
        else:
            where, right, more = f"from {begin} to {_text(high)}", "otherwise", 3
        yield _Property(of=name, where=where, right=right, order=order + more, cases=cases)


def _of_values(name: str, values: Sequence[str], count: int) -> Iterator[_Property]:
    known = [*dict.fromkeys(values)]
    most = len(known) - 1 if len(known) <= _VALUES else 1
    for some in chain.from_iterable(combinations(known, size) for size in range(1, most + 1)):
        cases = frozenset(number for number, value in enumerate(values) if value in some)
        if len(cases) == count:
            where, right = (_one_of(name, part) for part in (some, [value for value in known if value not in some]))
            yield _Property(of=name, where=where, right=right, order=0 if len(some) == 1 else 3, cases=cases)


def _one_of(name: str, values: Sequence[str]) -> str:
    if [*values] in (["given"], ["absent"]):
        return f"where {name} is {values[0]}"
    if name.endswith(".layout") and len(values) > 1 and "contiguous" not in values:
        return f"where {name.removesuffix('.layout')} is not contiguous"
    if len(values) > _NAMED:
        return "otherwise"
    return f"where {name} = {' or '.join(values)}"


def _text(value: int | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
