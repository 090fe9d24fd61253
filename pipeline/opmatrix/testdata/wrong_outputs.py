"""Wrong kernels whose output is zeros or a copy of an input; and outputs with which nothing can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from opmatrix.spec import Input, Output, Tolerance
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.compare import compare
from opmatrix.testdata.evaluated_cases import names
from opmatrix.testdata.finding import SMALL, Cases, Finding, known, numbers_in, remedy, shown_tolerances


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
    if not any(known(array).any() for array in expected):
        why = f" in {names(small)}. Add a case whose expected values are numbers"
        yield Finding(what=f"{named} is NaN everywhere", why=why)
        return
    if found := [*_zeros(named, expected, small)]:
        yield from found
        return
    for source in cases[0].spec.inputs:
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
    near = sum(_near_zero(array, tolerance) for array, tolerance in zip(numbers, tolerances, strict=True))
    if 2 * near > total:
        yield Finding(
            what=f"the tolerance hides {named}",
            why=f": {near} of the {total} expected numbers that are not 0 differ from 0 by no more than "
            f"{shown_tolerances(*tolerances)} allows, in {names(cases)}. A kernel that writes zeros passes there. "
            "Tighten the tolerance, or add cases with larger numbers",
        )


def _near_zero(numbers: Array, tolerance: Tolerance) -> int:
    """Return for how many numbers a 0 in their place is within the tolerance."""
    if numbers.dtype == np.object_:
        return 0
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
        shown = shown_tolerances(*(one.tolerances[dtype_name(one.expected[index])] for one in alike))
        yield Finding(
            what=f"output {output.name!r} equals input {source.name!r}",
            why=f" within {shown} in {names(alike)}, so a kernel that copies it passes. "
            f"{remedy(output, 'Add a case in which they differ')}",
            part=output,
        )
