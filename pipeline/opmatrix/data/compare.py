"""Compare actual and expected arrays within a tolerance, and print how they differ.

Tolerances are declared in ops/<name>/spec.py, by lowering and dtype. `judge.judge_case` and `torch_checks` choose one,
and say how a case fails. Where the wrong elements of an output are is searched only in a case that fails: a region
counts if as many elements, drawn at random, would hardly all lie in it or in another region of its kind, so that random
errors have no pattern.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import log10
from typing import Any, NamedTuple

import numpy as np

from opmatrix.data.arrays import BLOCK, Array, dtype_name, flat, kind, slices
from opmatrix.spec import Tolerance


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result. `error`, `ulp` and `tolerance_used` are the largest over all elements, 0 for none.

    `error` is the absolute error, inf where only one side is NaN or infinite. `ulp` is the error in units in the last
    place of the expected value; zeros are left out, since `atol` alone judges them. `tolerance_used` is the error as a
    fraction of the tolerance: up to 1.0 is allowed. `worst` is the index where it is largest; `expected` and `actual`
    are the values there, in the fewest digits that identify them. `first` is the first index, in C order, beyond the
    tolerance.
    """

    tolerance: Tolerance
    problem: str = ""  # why the arrays cannot be compared: number of outputs, dtype or shape
    elements: int = 0
    differing: int = 0
    worst: tuple[int, ...] | None = None
    first: tuple[int, ...] | None = None
    expected: str = ""
    actual: str = ""
    subject: str = ""  # the beginning of the message, such as the name of one of several outputs
    pattern: str = ""  # what the wrong elements have in common
    error: float = 0.0
    ulp: float = 0.0
    tolerance_used: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.problem and not self.differing

    def __str__(self) -> str:
        """Return ``3 of 64 elements differ beyond rtol=0.001 atol=1e-05; worst at (0, 17): ...``."""
        if self.problem:
            return f"{self.subject}{self.problem}"
        limits = shown_tolerance(self.tolerance)
        if self.ok:
            return f"{self.subject}{self.elements} elements agree within {limits}"
        differ = "differs" if self.differing == 1 else "differ"
        return (
            f"{self.subject}{self.differing} of {self.elements} elements {differ} beyond {limits}; "
            f"worst at {self.worst}: expected {self.expected}, got {self.actual}"
            f"{'; ' if self.pattern else ''}{self.pattern}"
        )


def shown_tolerance(tolerance: Tolerance) -> str:
    return f"rtol={tolerance.rtol:g} atol={tolerance.atol:g}"


class Pair(NamedTuple):
    """Outputs that must agree within tolerances, each with what it is, such as ``ONNX Runtime, optimised``."""

    actual_is: str
    actual: Sequence[Array]
    expected_is: str
    expected: Sequence[Array]
    tolerances: Sequence[Tolerance]


EXACT = Tolerance(rtol=0.0, atol=0.0)


def compare(actual: Array, expected: Array, *, tolerance: Tolerance) -> Comparison:
    """Compare dtype, shape, then every element: ``|actual - expected| <= atol + rtol * |expected|``.

    NaN equals NaN, an infinity equals the same infinity, and neither equals anything else. With `EXACT`, integers,
    bools and strings are equal or not, and so are floats (0.0 equals -0.0).
    """
    if actual.dtype != expected.dtype:
        problem = f"dtype is {dtype_name(actual)}, expected {dtype_name(expected)}"
        return Comparison(tolerance=tolerance, problem=problem)
    if actual.shape != expected.shape:
        return Comparison(tolerance=tolerance, problem=f"shape is {actual.shape}, expected {expected.shape}")
    error: Any = 0.0
    used: Any = 0.0
    ulp, differing, at, first = 0.0, 0, -1, -1
    for begin, a, e in blocks_of(actual, expected):
        if same_bytes(a, e):  # the usual case, and fast
            continue
        errors, parts, ulps = elementwise(a, e, tolerance=tolerance)
        worst = int(parts.argmax())
        if at < 0 or parts[worst] > used:
            # Equal blocks before this one have the smallest part, 0, and the first of them is the worst of all zeros.
            at, used = begin + worst if parts[worst] > 0 else 0, parts[worst]
        if parts[worst] > 1:
            beyond = parts > 1
            first = begin + int(beyond.argmax()) if first < 0 else first
            differing += int(beyond.sum())
        error = max(error, errors.max())
        ulp = float(np.maximum(ulp, ulps.max(initial=0.0)))  # which keeps a NaN
    if at < 0:
        return Comparison(tolerance=tolerance, elements=expected.size)
    place = np.unravel_index(at, expected.shape)
    return Comparison(
        tolerance=tolerance,
        elements=expected.size,
        differing=differing,
        worst=tuple(int(i) for i in place),
        first=None if first < 0 else tuple(int(i) for i in np.unravel_index(first, expected.shape)),
        expected=_shown(expected[place]),
        actual=_shown(actual[place]),
        error=float(error),
        ulp=ulp,
        tolerance_used=float(used),
    )


def blocks_of(actual: Array, expected: Array) -> Iterator[tuple[int, Array, Array]]:
    """Yield the blocks of two arrays of one shape, flat, each with the index of its first element; strings whole."""
    a, e = flat(actual), flat(expected)
    if expected.size <= BLOCK or expected.dtype == np.object_:
        yield 0, a[:], e[:]
        return
    for block in slices(expected.size):
        yield block.start, a[block], e[block]


def with_pattern(comparison: Comparison, actual: Array, expected: Array) -> Comparison:
    """Return a comparison of two arrays with the pattern of the wrong elements, if there are any."""
    if not comparison.differing:
        return comparison
    return replace(comparison, pattern=pattern(actual, expected, tolerance=comparison.tolerance))


def elementwise(actual: Array, expected: Array, *, tolerance: Tolerance) -> tuple[Array, Array, Array]:
    """Return the absolute error of each element and the part of its tolerance, both flat, and the errors in units in
    the last place of those elements that have one. `Comparison` describes the three; the arrays have equal shapes."""
    flat = expected.ravel()  # so that a scalar is an array too
    error = _error(actual.ravel(), flat)
    return error, _tolerance_used(error, flat, tolerance), _ulps(error, flat)


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def same_bytes(first: Array, second: Array) -> bool:
    """Return whether two arrays have one dtype, one shape and equal bytes. Takes little memory for large ones."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.dtype == np.object_:  # whose bytes are addresses
        return bool((first == second).all())
    if first.size <= BLOCK:  # the usual case, some hundred times in each step that verifies
        return first.tobytes() == second.tobytes()
    return all(a.tobytes() == b.tobytes() for _, a, b in blocks_of(first, second))


def first_difference(
    first: Sequence[Array], second: Sequence[Array], subjects: Sequence[str] = ()
) -> Comparison | None:
    """Return the comparison of the first output in which two runs differ at all, with its subject, or None."""
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        found = compare(b, a, tolerance=EXACT) if a is not b else None
        if found and not found.ok:
            return replace(found, subject=subjects[index] if subjects else "")
    return None


def _error(actual: Array, expected: Array) -> Array:
    """Return the absolute error of each element; inf where only one side is NaN or infinite."""
    if expected.dtype == np.object_:
        return np.where(actual == expected, 0.0, math.inf)
    a, e = _wide(actual), _wide(expected)
    same = (a == e) | (np.isnan(a) & np.isnan(e))
    with np.errstate(invalid="ignore", over="ignore"):
        distance: Array = np.abs(a - e)
    distance[~(np.isfinite(a) & np.isfinite(e))] = math.inf
    distance[same] = 0
    return distance


def _wide(array: Array) -> Array:
    """Return the values in a type in which differences are exact.

    longdouble represents every int64 and uint64 on x86-64. Floats become float64 only: a NaN in longdouble costs a
    thousand times as much as a number.
    """
    with np.errstate(invalid="ignore"):  # memory that no kernel wrote may be a signalling NaN
        return array.astype(np.longdouble if kind(array.dtype) in "iub" else np.float64)


def _tolerance_used(error: Array, expected: Array, tolerance: Tolerance) -> Array:
    """Return each error as a fraction of its tolerance; inf for an error where the tolerance is 0."""
    if expected.dtype == np.object_:
        return error
    size = np.abs(_wide(expected))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        used: Array = error / (tolerance.atol + tolerance.rtol * size)
    used[~np.isfinite(error)] = math.inf
    used[error == 0] = 0
    return used


def _ulps(error: Array, expected: Array) -> Array:
    """Return errors in units in the last place of the expected value, where there is one; the unit of integers is 1."""
    if kind(expected.dtype) in "iub":
        return error
    if expected.dtype == np.object_:
        return np.empty(0)
    counted = np.isfinite(error) & np.isfinite(expected) & (expected != 0)
    with np.errstate(over="ignore", invalid="ignore"):
        unit = _wide(np.abs(np.spacing(expected[counted])))
        ulps: Array = error[counted] / unit
    return ulps


_SURE = 3.3  # digits of the odds against a coincidence
_FEW = 3  # indices of an axis, from which on every second or third of them is a region
_LARGEST = 1 << 18  # elements of an output that is compared with itself transposed
_VECTORS = (16, 8, 4)  # elements that a kernel may compute at once


@dataclass(frozen=True, kw_only=True)
class _Region:
    """Elements of an output, or indices of an axis, which `index` writes as NumPy does; `choices` regions are alike."""

    name: str
    index: str = ""
    size: int
    choices: float

    def digits(self, count: int, of: int) -> float:
        """Return the digits of the odds against `count` random elements `of` an output in a region of this kind."""
        return count * log10(of / self.size) - log10(self.choices)


def pattern(actual: Array, expected: Array, *, tolerance: Tolerance) -> str:
    """Return where the wrong elements are, such as ``all of [:, 4] (index 4 of axis 1) and nothing else``, or that the
    expected ones are there in transposed order; "" where they have no pattern. The arrays have one dtype and one
    shape."""
    wrong = np.zeros(expected.size, bool)
    for begin, a, e in blocks_of(actual, expected):
        wrong[begin : begin + e.size] = elementwise(a, e, tolerance=tolerance)[1] > 1
    count, total = int(wrong.sum()), wrong.size
    if 2 * count >= total and count and (order := _transposed(actual, expected, tolerance)):
        return order
    if count in (0, total):
        return ""
    regions = [r for r in _regions(wrong.reshape(expected.shape)) if r.digits(count, total) >= _SURE]
    best = min(regions, key=lambda region: region.size, default=None)
    if best is None:
        return ""
    if count == best.size:
        return f"all of {best.name} and nothing else"
    return f"only in {best.name}: {count} of its {best.size} elements"


def _regions(wrong: Array) -> Iterator[_Region]:
    """Yield regions that contain all wrong elements, and not all elements."""
    count, shape = int(wrong.sum()), wrong.shape
    along = {axis: region for axis in range(wrong.ndim) if (region := _along(wrong, axis))}
    if chosen := {axis: region for axis, region in along.items() if region.digits(count, shape[axis]) >= _SURE}:
        indices = [chosen[axis].index if axis in chosen else ":" for axis in range(max(chosen) + 1)]
        names = [region.name for region in chosen.values()]
        size = math.prod(chosen[axis].size if axis in chosen else length for axis, length in enumerate(shape))
        choices = math.prod(region.choices for region in chosen.values())
        yield _Region(name=f"[{', '.join(indices)}] ({', '.join(names)})", size=size, choices=choices)
    for axes in range(1, min(wrong.ndim, 3) + 1):  # the borders: the first and last indices of the last axes
        if shape[-axes] < _FEW:
            return
        inner = wrong[tuple([slice(None)] * (wrong.ndim - axes) + [slice(1, -1)] * axes)]
        if not inner.any():
            which = "the last axis" if axes == 1 else f"the last {axes} axes"
            yield _Region(name=f"the border of {which}", size=wrong.size - inner.size, choices=3)


def _along(wrong: Array, axis: int) -> _Region | None:
    """Return which indices of one axis have wrong elements, where these are few and regular."""
    hit = np.flatnonzero(wrong.any(axis=tuple(other for other in range(wrong.ndim) if other != axis)))
    size, first, last, step = wrong.shape[axis], int(hit[0]), int(hit[-1]), int(hit[1] - hit[0]) if len(hit) > 1 else 1
    if len(hit) == size or (np.diff(hit) != step).any():
        return None
    if len(hit) == 1:
        return _Region(index=f"{first}", name=f"index {first} of axis {axis}", size=1, choices=size)
    if step > 1:
        if len(hit) < _FEW or first >= step or last + step < size:
            return None
        return _Region(
            index=f"{first or ''}::{step}", name=f"every {_nth(step)} of axis {axis}", size=len(hit), choices=size
        )
    if last == size - 1:
        width = next((w for w in _VECTORS if first % w == 0 and size - first < w), 0)
        tail = f", after a multiple of {width}" if width else ""
        choices = len(_VECTORS) if width else size
        return _Region(index=f"{first}:", name=f"the end of axis {axis}{tail}", size=len(hit), choices=choices)
    if first == 0:
        return _Region(index=f":{last + 1}", name=f"the beginning of axis {axis}", size=len(hit), choices=size)
    return _Region(index=f"{first}:{last + 1}", name=f"a part of axis {axis}", size=len(hit), choices=size**2 / 2)


def _transposed(actual: Array, expected: Array, tolerance: Tolerance) -> str:
    """Return in which order of axes the expected elements are there, or ""."""
    if not (4 <= expected.size <= _LARGEST and 1 < expected.ndim <= 4) or expected.dtype == np.object_:
        return ""
    a, e = actual.astype(np.float64).ravel(), expected.astype(np.float64)
    if len(np.unique(e)) < max(4, e.size // 4):
        return ""
    for order in list(permutations(range(e.ndim)))[1:]:
        x = e.transpose(order).ravel()
        with np.errstate(invalid="ignore"):
            near = (np.abs(a - x) <= tolerance.atol + tolerance.rtol * np.abs(x)) | (a == x)
        if (near | (np.isnan(a) & np.isnan(x))).all():
            return f"the expected elements are there, transposed by {order}"
    return ""


def _nth(number: int) -> str:
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
