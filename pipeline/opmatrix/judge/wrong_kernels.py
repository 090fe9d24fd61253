"""Wrong kernels that read something else than an input's values, or a constant instead of an attribute, or whose output
is zeros or a copy of an input; and outputs with which nothing can be compared: findings of the stage `cases`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from opmatrix.basics.errors import DataError
from opmatrix.data.arrays import Array, dtype_name, is_float, reversed_copy
from opmatrix.data.compare import compare, shown_tolerance
from opmatrix.data.evaluated import EvaluatedCase, names
from opmatrix.data.reference import Argument, with_each
from opmatrix.search.attribute_candidates import candidates
from opmatrix.signature.signature import as_float32, dtype_of
from opmatrix.spec import Attribute, AttributeValue, Input, Output, Tolerance, shape_of, tensors_of

Cases = Sequence[EvaluatedCase]

SMALL = 20_000
"""Elements of the inputs of a case that is always read; larger ones are read only where no smaller one is enough."""
_LIFTED = 4  # cases in which something with `no_effect` is evaluated


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A wrong kernel that passes: `what` is the same for each dtype, `why` its details. `part` is what `no_effect` can
    be declared for; None: it is an error in any case."""

    what: str
    why: str
    part: Input | Attribute | Output | None = None


def tried_with(part: Input | Attribute, cases: Cases) -> Cases:
    """Return the cases in which a replacement is evaluated."""
    return cases[:_LIFTED] if part.no_effect else cases


def remedy(part: Input | Attribute | Output, add: str) -> str:
    tighten = "" if add.startswith("Add a model") else ", tighten the tolerance"
    return f'{add}{tighten}, or declare {type(part).__name__}(name={part.name!r}, ..., no_effect="why")'


def limits(cases: Cases) -> str:
    """Return the tolerances of all outputs of cases."""
    return shown_tolerances(one.tolerances[dtype_name(array)] for one in cases for array in one.right)


def shown_tolerances(tolerances: Iterable[Tolerance]) -> str:
    return " and ".join(dict.fromkeys(map(shown_tolerance, tolerances)))


def not_nan(array: Array) -> Array:
    """Return where an array is not NaN."""
    return ~np.isnan(array) if is_float(array.dtype) else np.ones(array.shape, bool)


def numbers_in(array: Array) -> Array:
    """Return where an array is neither NaN nor 0, and a string not empty."""
    where: Array = not_nan(array) & (array != ("" if array.dtype == np.object_ else 0))
    return where


_ONE: Mapping[str, AttributeValue] = {"floats": (1.0,), "ints": (1,), "bools": (True,), "strings": ("a",)}

# Inputs.


def of_input(part: Input, cases: Cases) -> Iterator[Finding]:
    having = [one for one in cases if tensors_of(one.case, part.name)]
    if not having:
        yield Finding(
            what=f"no case gives input {part.name!r}",
            why=f", so a kernel that ignores it passes. {remedy(part, 'Add a model whose cases give it')}",
            part=part,
        )
        return
    text = dtype_of(part.type, having[0].model.types) == "string"
    first, second = ("empty strings", "strings of one letter") if text else ("zeros", "ones")
    replacements: dict[str, Callable[[EvaluatedCase], Argument]] = {
        first: lambda one: with_each(one.arguments[part.name], lambda array: _full(array, 0)),
        second: lambda one: with_each(one.arguments[part.name], lambda array: _full(array, 1)),
    }
    if part.optional or part.variadic:
        replacements["nothing"] = lambda one: () if part.variadic else None
    ignored: list[str] = []
    refused = True
    for word, replacement in replacements.items():
        outcome = _outcome(part, word, replacement, having)
        refused &= outcome == "raises"
        ignored += [word] * (outcome == "passes")
    if refused:  # nothing shows yet that its values count, and not only that the reference checks them
        several = [
            o for o in having if max(math.prod(shape_of(tensor)) for tensor in tensors_of(o.case, part.name)) > 1
        ]
        word = "its own values in reverse order"
        outcome = _outcome(part, word, lambda one: with_each(one.arguments[part.name], reversed_copy), several)
        ignored += [word] * bool(several and outcome == "passes")
    if ignored:
        tried = tried_with(part, having)
        those = " and ".join(filter(None, (", ".join(ignored[:-1]), ignored[-1])))
        yield Finding(
            what=f"no case distinguishes input {part.name!r} from {those}",
            why=f": with {'any of them' if ignored[1:] else those} in "
            f"its place, the expected values of {names(tried)} change by no more than {limits(tried)}. "
            f"{remedy(part, 'Add a case in which its values count')}",
            part=part,
        )


def _outcome(
    part: Input, word: str, replacement: Callable[[EvaluatedCase], Argument], cases: Cases
) -> Literal["fails", "raises", "passes"]:
    """Return whether a kernel with a replaced input fails in a case, else whether the reference raises in one."""
    outcome: Literal["raises", "passes"] = "passes"
    for one in tried_with(part, cases):
        try:
            if one.fails_with(f"{word} as input {part.name}", **{part.name: replacement(one)}):
                return "fails"
        except DataError:
            outcome = "raises"
    return outcome


def _full(array: Array, value: int) -> Array:
    return np.full_like(array, "x" * value if array.dtype == np.object_ else value)


# Attributes.


def of_attribute(attribute: Attribute, cases: Cases) -> Iterator[Finding]:
    """Yield the finding for a kernel, a binding or a lowering with a constant in place of an attribute: its default, or
    the value of the first case if it has none. One that all cases share is then compared with another legal value."""
    name = attribute.name
    shown = constant = cases[0].attributes[name]
    if has_default := attribute.optional or attribute.default is not None:
        shown, constant = attribute.default, as_float32(attribute, attribute.default)
    others = [one for one in cases if one.attributes[name] != constant]
    another = _another(attribute, constant)
    if another is None:  # no other value is legal or known
        return
    if not others and has_default:
        yield Finding(
            what=f"attribute {name!r} has its default {shown!r}",
            why=f" in {names(cases)}, so a kernel, a binding or a lowering with this constant in its place passes. "
            f"{remedy(attribute, 'Add a model with another value')}",
            part=attribute,
        )
        return
    if not others:
        others, shown, constant = [*cases], another, another
    tried = tried_with(attribute, others)
    try:
        if any(one.fails_with(f"{constant!r} as attribute {name}", **{name: constant}) for one in tried):
            return
    except DataError:
        return
    yield Finding(
        what=f"no case distinguishes attribute {name!r} from the value {shown!r}",
        why=f": with it, the expected values of {names(tried)} change by no more than {limits(tried)}. "
        f"{remedy(attribute, 'Add a case in which its value counts')}",
        part=attribute,
    )


def _changed(value: AttributeValue) -> AttributeValue:
    """Return a tensor with another element, None for one without elements."""
    if isinstance(value, tuple):
        changed = [_changed(item) for item in value]
        return None if None in changed or not changed else tuple(item for item in changed if item is not None)
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) and value < 100 else 0


def _another(attribute: Attribute, value: AttributeValue) -> AttributeValue | None:
    if attribute.allowed is not None:
        return next((one for one in attribute.allowed if one != value), None)
    if value is None:
        return _ONE[attribute.kind] if attribute.kind in _ONE else next(iter(candidates(attribute)), None)
    if attribute.kind == "string":
        return f"{value}_"
    if attribute.kind == "tensor":
        return _changed(value)
    if isinstance(value, tuple):
        return value[1:] if value else _ONE[attribute.kind]
    if isinstance(value, bool):
        return not value
    low, high = (limit if limit is not None else sign * math.inf for limit, sign in
                 ((attribute.minimum, -1), (attribute.maximum, 1)))  # fmt: skip
    steps = (value + 1, value - 1, low, high)  # type: ignore[operator]  # a float or an int
    return next((type(value)(one) for one in steps if low <= one <= high and one != value), None)


def findings(output: Output, index: int, cases: Cases) -> Iterator[Finding]:
    named = f"output {output.name!r}"
    if not cases:
        yield Finding(
            what=f"{named} is absent", why=" from all cases, so no value is compared. Add a model that has it"
        )
        return
    small = [one for one in cases if one.elements <= SMALL] or cases
    expected = [one.expected[index] for one in small]
    if not sum(array.size for array in expected):
        why = f" in {names(small)}, so no value is compared. Add a case that gives it some"
        yield Finding(what=f"{named} is empty", why=why)
        return
    if not any(not_nan(array).any() for array in expected):
        why = f" in {names(small)}. Add a case whose expected values are numbers"
        yield Finding(what=f"{named} is NaN everywhere", why=why)
        return
    zeros = [*_zeros(named, expected, small)]
    yield from zeros
    for source in () if zeros else cases[0].spec.inputs:
        yield from _copy(output, index, source, small)


def _zeros(named: str, expected: Sequence[Array], cases: Cases) -> Iterator[Finding]:
    """Yield the finding for a kernel that writes zeros. Most numbers must tell it: a single huge one does not show that
    a tolerance fits the others."""
    numbers = [array[numbers_in(array)] for array in expected]
    total = sum(array.size for array in numbers)
    if not total:
        text = all(array.dtype == np.object_ for array in expected)
        what, written = ("an empty string everywhere", "nothing") if text else ("0 wherever it is a number", "zeros")
        yield Finding(
            what=f"{named} is {what}",
            why=f" in {names(cases)}, so a kernel that writes {written} passes. Add a case with other expected values",
        )
        return
    tolerances = [one.tolerances[dtype_name(array)] for one, array in zip(cases, numbers, strict=True)]
    near = 0  # numbers for which a 0 in their place is within the tolerance
    for array, tolerance in zip(numbers, tolerances, strict=True):
        if array.dtype != np.object_:
            size = np.abs(array.astype(np.float64))
            with np.errstate(over="ignore", invalid="ignore"):
                near += int((np.isfinite(size) & (size <= tolerance.atol + tolerance.rtol * size)).sum())
    if 2 * near > total:
        yield Finding(
            what=f"the tolerance hides {named}",
            why=f": {near} of the {total} expected numbers that are not 0 differ from 0 by no more than "
            f"{shown_tolerances(tolerances)} allows, in {names(cases)}. A kernel that writes zeros passes there. "
            "Tighten the tolerance, or add cases with larger numbers",
        )


def _copy(output: Output, index: int, source: Input, cases: Cases) -> Iterator[Finding]:
    """Yield the finding for a kernel that copies an input. It fails where the output has another shape or dtype."""
    alike = []
    for one in cases:
        array, expected = one.arguments[source.name], one.expected[index]
        tolerance = one.tolerances[dtype_name(expected)]
        if not isinstance(array, np.ndarray) or not compare(array, expected, tolerance=tolerance).ok:
            return
        if expected.size:
            alike.append(one)
    if alike:
        shown = shown_tolerances(one.tolerances[dtype_name(one.expected[index])] for one in alike)
        yield Finding(
            what=f"output {output.name!r} equals input {source.name!r}",
            why=f" within {shown} in {names(alike)}, so a kernel that copies it passes. "
            f"{remedy(output, 'Add a case in which they differ')}",
            part=output,
        )
