"""Find wrong kernels that pass all cases of a dtype: a proof that could not have failed is hollow.

The kernels are made of the reference: an output is zeros or a copy of an input; an input is read as zeros, as ones or
as absent; an attribute has a constant value. Each must fail in a case of each declared dtype. What a declaration
excepts, by `no_effect`, must pass for some dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from opmatrix.declaration.torch_signature import as_float32
from opmatrix.errors import DataError
from opmatrix.spec import Attribute, AttributeValue, Input, OpSpec, Output, Tolerance, given, shape_of
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.compare import compare
from opmatrix.testdata.evaluated_cases import EvaluatedCase, names
from opmatrix.testdata.numpy_reference import Argument

Cases = Sequence[EvaluatedCase]

_SMALL = 20_000  # elements of the inputs of a case that is always read; others only where no smaller one is enough
_ONE: Mapping[str, AttributeValue] = {"floats": (1.0,), "ints": (1,), "bools": (True,)}
_LIFTED = 4  # cases in which something with `no_effect` is evaluated


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A wrong kernel that passes. `part` is what `no_effect` could be declared for; None: an error in any case."""

    text: str
    part: Input | Attribute | Output | None = None


def problems(spec: OpSpec, cases: Cases) -> list[str]:
    """Return what is wrong, a line for each, with the dtypes for which it is."""
    groups = [*_groups(spec, sorted(cases, key=lambda one: one.elements))]
    found: dict[str, list[str]] = {}  # by text, the groups
    lifted: dict[tuple[str, str], set[str]] = {}  # by the part that has `no_effect`, the groups that need it
    for group, chosen in groups:
        if not chosen:
            variable, _, dtype = group.partition("=")
            found[
                f"no case has {group}, which `types` declares. Add a model with types={{{variable!r}: {dtype!r}}}, or "
                "remove the dtype"
            ] = []
            continue
        for finding in _findings(spec, chosen):
            if finding.part and finding.part.no_effect:
                lifted.setdefault(_key(finding.part), set()).add(group)
            else:
                found.setdefault(finding.text, []).append(group)
    lines = [f"{' and '.join(filter(None, where))}: {text}" if any(where) else text for text, where in found.items()]
    declared: list[Input | Attribute | Output] = [*spec.inputs, *spec.attributes, *spec.outputs]
    lines += [
        f"{kind} {name!r} declares no_effect={part.no_effect!r}, but cases of each dtype show its effect. Remove it"
        for part in declared
        for kind, name in [_key(part)]
        if part.no_effect and (kind, name) not in lifted
    ]
    return lines


def idle(cases: Cases) -> list[str]:
    """Return the names of small cases that tell nothing: every expected element is 0 or NaN, or there is none."""
    small = [one for one in cases if one.elements <= _SMALL]
    return [one.case.name for one in small if not any(_numbers(array).any() for array in one.expected)]


def _key(part: Input | Attribute | Output) -> tuple[str, str]:
    return type(part).__name__.lower(), part.name


def _groups(spec: OpSpec, cases: Cases) -> Iterator[tuple[str, Cases]]:
    """Yield ``T=float32`` and the cases that have it, for each declared dtype; "" and all cases if there is none."""
    for variable, dtypes in spec.types.items():
        for dtype in dtypes:
            yield f"{variable}={dtype}", [one for one in cases if one.model.types[variable] == dtype]
    if not spec.types:
        yield "", cases


def _findings(spec: OpSpec, cases: Cases) -> Iterator[Finding]:
    blind = 0
    for index, output in enumerate(spec.outputs):
        found = [*_output(output, index, cases)]
        yield from found
        blind += any(finding.part is None for finding in found)
    if blind == len(spec.outputs):  # so nothing can show the effect of an input or an attribute
        return
    for part in spec.inputs:
        yield from _input(part, cases)
    for attribute in spec.attributes:
        yield from _attribute(attribute, cases)


# Outputs.


def _output(output: Output, index: int, cases: Cases) -> Iterator[Finding]:
    named = f"output {output.name!r}"
    small = [one for one in cases if one.elements <= _SMALL] or cases
    expected = [one.expected[index] for one in small]
    if not sum(array.size for array in expected):
        yield Finding(
            text=f"{named} is empty in {names(small)}, so no value is compared. Add a case that gives it some"
        )
        return
    if not any(_known(array).any() for array in expected):
        yield Finding(text=f"{named} is NaN everywhere in {names(small)}. Add a case whose expected values are numbers")
        return
    if found := [*_zeros(named, expected, small)]:
        yield from found
        return
    for source in cases[0].spec.inputs:
        yield from _copy(output, index, source, small)


def _zeros(named: str, expected: Sequence[Array], cases: Cases) -> Iterator[Finding]:
    """Yield the finding for a kernel that writes zeros. Most numbers must tell it: a single huge one does not show that
    a tolerance fits the others."""
    numbers = [array[_numbers(array)] for array in expected]
    total = sum(array.size for array in numbers)
    if not total:
        yield Finding(
            text=f"{named} is 0 wherever it is a number in {names(cases)}, so a kernel that writes zeros passes. Add a "
            "case with other expected values"
        )
        return
    tolerances = [one.tolerances[dtype_name(array)] for one, array in zip(cases, numbers, strict=True)]
    near = sum(_near_zero(array, tolerance) for array, tolerance in zip(numbers, tolerances, strict=True))
    if 2 * near > total:
        yield Finding(
            text=f"the tolerance hides {named}: {near} of the {total} expected numbers that are not 0 differ from 0 by "
            f"no more than {_shown(*tolerances)} allows, in {names(cases)}. A kernel that writes zeros passes there. "
            "Tighten the tolerance, or add cases with larger numbers"
        )


def _near_zero(numbers: Array, tolerance: Tolerance) -> int:
    """Return for how many numbers a 0 in their place is within the tolerance."""
    size = np.abs(numbers.astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        return int((np.isfinite(size) & (size <= tolerance.atol + tolerance.rtol * size)).sum())


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
        yield Finding(
            text=f"output {output.name!r} equals input {source.name!r} within "
            f"{_shown(alike[0].tolerances[dtype_name(alike[0].expected[index])])} in {names(alike)}, so a kernel that "
            f"copies it passes. {_remedy(output, 'Add a case in which they differ')}",
            part=output,
        )


# Inputs.


def _input(part: Input, cases: Cases) -> Iterator[Finding]:
    having = [one for one in cases if given(one.case, part.name)]
    if not having:
        yield Finding(
            text=f"no case gives input {part.name!r}, so a kernel that ignores it passes. "
            f"{_remedy(part, 'Add a model whose cases give it')}",
            part=part,
        )
        return
    replacements: dict[str, Callable[[EvaluatedCase], Argument]] = {
        "zeros": lambda one: _filled(one.arguments[part.name], 0),
        "ones": lambda one: _filled(one.arguments[part.name], 1),
    }
    if _may_lack(part):
        replacements["nothing"] = lambda one: () if part.variadic else None
    ignored: list[str] = []
    refused = True
    for word, replacement in replacements.items():
        outcome = _outcome(part, word, replacement, having)
        refused &= outcome == "raises"
        ignored += [word] * (outcome == "passes")
    if refused:  # nothing shows yet that its values count, and not only that the reference checks them
        word, several = "its own values in reverse order", [one for one in having if _elements(one, part) > 1]
        outcome = _outcome(part, word, lambda one: _reversed(one.arguments[part.name]), several)
        ignored += [word] * bool(several and outcome == "passes")
    if ignored:
        tried = _tried(part, having)
        those = " and ".join(filter(None, (", ".join(ignored[:-1]), ignored[-1])))
        yield Finding(
            text=f"no case tells input {part.name!r} from {those}: with {'any of them' if ignored[1:] else those} in "
            f"its place, the expected values of {names(tried)} change by no more than {_limits(tried)}. "
            f"{_remedy(part, 'Add a case in which its values count')}",
            part=part,
        )


def _may_lack(part: Input) -> bool:
    return part.optional or part.variadic


def _tried(part: Input | Attribute, cases: Cases) -> Cases:
    return cases[:_LIFTED] if part.no_effect else cases


def _outcome(
    part: Input, word: str, replacement: Callable[[EvaluatedCase], Argument], cases: Cases
) -> Literal["fails", "raises", "passes"]:
    """Return whether a kernel with a replaced input fails in a case, else whether the reference raises in one."""
    raises = False
    for one in _tried(part, cases):
        try:
            if one.fails_with(f"{word} as input {part.name}", **{part.name: replacement(one)}):
                return "fails"
        except DataError:
            raises = True
    return "raises" if raises else "passes"


def _elements(one: EvaluatedCase, part: Input) -> int:
    """Return the number of elements of the largest tensor of an input."""
    return max(math.prod(shape_of(tensor)) for tensor in given(one.case, part.name))


def _filled(argument: Argument, value: int) -> Argument:
    if isinstance(argument, tuple):
        return tuple(np.full_like(array, value) for array in argument)
    return None if argument is None else np.full_like(argument, value)


def _reversed(argument: Argument) -> Argument:
    if isinstance(argument, tuple):
        return tuple(np.ascontiguousarray(array.ravel()[::-1]).reshape(array.shape) for array in argument)
    return None if argument is None else np.ascontiguousarray(argument.ravel()[::-1]).reshape(argument.shape)


# Attributes.


def _attribute(attribute: Attribute, cases: Cases) -> Iterator[Finding]:
    """Yield the finding for a kernel, a binding or a lowering with a constant in place of an attribute: its default, or
    the value of the first case if it has none. One that all cases share is then compared with another legal value."""
    name = attribute.name
    shown = constant = cases[0].attributes[name]
    if attribute.default is not None:
        shown, constant = attribute.default, as_float32(attribute, attribute.default)
    others = [one for one in cases if one.attributes[name] != constant]
    another = _another(attribute, constant)
    if another is None:  # no other value is legal or known
        return
    if not others and attribute.default is not None:
        yield Finding(
            text=f"attribute {name!r} has its default {shown!r} in {names(cases)}, so a kernel, a binding or a "
            "lowering with this constant in its place passes. "
            f"{_remedy(attribute, 'Add a model with another value')}",
            part=attribute,
        )
        return
    if not others:
        others, shown, constant = [*cases], another, another
    tried = _tried(attribute, others)
    for one in tried:
        try:
            if one.fails_with(f"{constant!r} as attribute {name}", **{name: constant}):
                return
        except DataError:
            return
    yield Finding(
        text=f"no case tells attribute {name!r} from the value {shown!r}: with it, the expected values of "
        f"{names(tried)} change by no more than {_limits(tried)}. "
        f"{_remedy(attribute, 'Add a case in which its value counts')}",
        part=attribute,
    )


def _another(attribute: Attribute, value: AttributeValue) -> AttributeValue | None:
    """Return a legal value that is not `value`, or None."""
    if attribute.allowed is not None:
        return next((one for one in attribute.allowed if one != value), None)
    if attribute.kind == "string":
        return f"{value}_"
    if isinstance(value, tuple):
        return value[1:] if value else _ONE[attribute.kind]
    if isinstance(value, bool):
        return not value
    low, high = (limit if limit is not None else sign * math.inf for limit, sign in
                 ((attribute.minimum, -1), (attribute.maximum, 1)))  # fmt: skip
    steps = (value + 1, value - 1, low, high)  # type: ignore[operator]  # a float or an int
    return next((type(value)(one) for one in steps if low <= one <= high and one != value), None)


# Messages and numbers.


def _remedy(part: Input | Attribute | Output, add: str) -> str:
    tighten = "" if add.startswith("Add a model") else ", tighten the tolerance"
    return f'{add}{tighten}, or declare {type(part).__name__}(name={part.name!r}, ..., no_effect="why")'


def _limits(cases: Cases) -> str:
    """Return the tolerances of all outputs of cases."""
    return _shown(*(one.tolerances[dtype_name(array)] for one in cases for array in one.right))


def _shown(*tolerances: Tolerance) -> str:
    return " and ".join(dict.fromkeys(f"rtol={one.rtol:g} atol={one.atol:g}" for one in tolerances))


def _known(array: Array) -> Array:
    """Return where an array is not NaN."""
    known: Array = ~np.isnan(array) if array.dtype.kind == "f" else np.ones(array.shape, bool)
    return known


def _numbers(array: Array) -> Array:
    """Return where an array is neither NaN nor 0."""
    numbers: Array = _known(array) & (array != 0)
    return numbers
