"""Find what the wrong elements of an output have in common: where they are, and what they are instead.

Only a case that fails is searched. A region counts if as many elements, drawn at random, would hardly all lie in it or
in another region of its kind, so that random errors have no pattern.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from math import log10

import numpy as np

from opmatrix.spec import Tolerance
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import blocks_of, elementwise
from opmatrix.testdata.dtypes import is_float

_SURE = 3.3  # digits of the odds against a coincidence
_FEW = 3  # wrong elements, from which on what they are is a pattern
_MOST = 1 << 22  # wrong elements whose values or distances are compared with each other
_LARGEST = 1 << 18  # elements of an output that is compared with itself in another order
_CLEAR = 10  # times the tolerance that an error is, for its factor or summand to be known
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
    """Return a phrase for each pattern, joined with "; ", such as ``all of [:, 4] (index 4 of axis 1) and nothing else;
    each is 2 times the expected value``. "" for none. The arrays have one dtype and one shape."""
    wrong, errors = np.zeros(expected.size, bool), []
    for begin, a, e in blocks_of(actual, expected):
        error, used, _ = elementwise(a, e, tolerance=tolerance)
        wrong[begin : begin + e.size] = beyond = used > 1
        errors.append(error[beyond])
    if not wrong.any():
        return ""
    numbers = expected.dtype != np.object_
    if numbers and 2 * wrong.sum() >= wrong.size and (order := _order(actual, expected, tolerance)):
        return order
    how = ""
    if numbers and _FEW <= wrong.sum() <= _MOST:
        how = _how(actual.ravel()[wrong], expected.ravel()[wrong], np.concatenate(errors), tolerance)
    return "; ".join(filter(None, [_where(wrong.reshape(expected.shape), expected), how]))


def _where(wrong: Array, expected: Array) -> str:
    count, total = int(wrong.sum()), wrong.size
    if count == total:
        return ""
    regions = [r for r in _regions(wrong, expected) if r.digits(count, total) >= _SURE]
    if not regions:
        return ""
    best = min(regions, key=lambda region: region.size)
    if count == best.size:
        return f"all of {best.name} and nothing else"
    return f"only in {best.name}: {count} of its {best.size} elements"


def _regions(wrong: Array, expected: Array) -> Iterator[_Region]:
    """Yield regions that contain all wrong elements, and not all elements."""
    count, total, shape = int(wrong.sum()), wrong.size, wrong.shape
    chosen = {axis: found for axis in range(wrong.ndim) if (found := _along(wrong, axis))}
    if chosen := {axis: found for axis, found in chosen.items() if found.digits(count, shape[axis]) >= _SURE}:
        yield _box(shape, chosen)
    yield from _borders(wrong)
    start, stop = int(wrong.ravel().argmax()), total - int(wrong.ravel()[::-1].argmax())
    if wrong.ndim > 1 and 2 * count >= total - start:
        yield _Region(name=f"the elements from flat index {start} on", size=total - start, choices=total)
    if wrong.ndim > 1 and 2 * count >= stop:
        yield _Region(name=f"the elements before flat index {stop}", size=stop, choices=total)
    if 1 < count <= _MOST and (step := int(np.gcd.reduce(np.diff(np.flatnonzero(wrong))))) > 1:
        first = start % step
        name = f"every {_nth(step)} element in memory, from flat index {first} on"
        yield _Region(name=name, size=len(range(first, total, step)), choices=step * len(range(2, total)))
    if expected.dtype != np.object_:
        yield from _of_values(wrong, expected)


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


def _box(shape: tuple[int, ...], chosen: dict[int, _Region]) -> _Region:
    indices = [chosen[axis].index if axis in chosen else ":" for axis in range(max(chosen) + 1)]
    names = [region.name for region in chosen.values()]
    size = math.prod(chosen[axis].size if axis in chosen else length for axis, length in enumerate(shape))
    choices = math.prod(region.choices for region in chosen.values())
    return _Region(name=f"[{', '.join(indices)}] ({', '.join(names)})", size=size, choices=choices)


def _borders(wrong: Array) -> Iterator[_Region]:
    """Yield the first and last indices of the last axes."""
    inner = wrong
    for axes in range(1, min(wrong.ndim, 3) + 1):
        if wrong.shape[-axes] < _FEW:
            return
        inside = tuple([slice(None)] * (wrong.ndim - axes) + [slice(1, -1)] * axes)
        inner = wrong[inside]
        if not inner.any():
            which = "the last axis" if axes == 1 else f"the last {axes} axes"
            yield _Region(name=f"the border of {which}", size=wrong.size - inner.size, choices=3)


def _of_values(wrong: Array, expected: Array) -> Iterator[_Region]:
    """Yield the elements whose expected values are of one kind."""
    values = expected if is_float(expected.dtype) else expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        kinds = {
            "a negative expected value": values < 0,
            "a positive expected value": values > 0,
            "an expected value of 0": values == 0,
            "NaN or an infinity as the expected value": ~np.isfinite(values),
        }
    for name, those in kinds.items():
        size = int(those.sum())
        if wrong[those].sum() == wrong.sum() and size < wrong.size and 2 * wrong.sum() >= size:
            yield _Region(name=f"the elements with {name}", size=size, choices=len(kinds))


def _how(actual: Array, expected: Array, error: Array, tolerance: Tolerance) -> str:
    """Return what the wrong elements are instead of the expected values."""
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    count = len(a)
    strange = np.isnan(a) & ~np.isnan(e)
    if strange.any():
        return "each is NaN" if strange.all() else f"{strange.sum()} of the {count} are NaN"
    if (np.isnan(e) & ~np.isnan(a)).all():
        return "each is a number where NaN is expected"
    infinite = np.isinf(a) & np.isfinite(e)
    if infinite.any():
        return "each is infinite" if infinite.all() else f"{infinite.sum()} of the {count} are infinite"
    if not np.isfinite(a).all() or not np.isfinite(e).all() or actual.dtype == np.bool_:
        return ""
    distinct = len(np.unique(e))
    if (a == a[0]).all() and distinct > 1:
        return f"each is {a[0] + 0.0:g}"  # 0 for -0
    allowed = tolerance.atol + tolerance.rtol * np.abs(e) + _rounding(expected) * np.maximum(np.abs(a), np.abs(e))
    if distinct < _FEW or float(np.median(error)) < _CLEAR * float(np.median(allowed)):
        return ""
    with np.errstate(over="ignore", invalid="ignore"):  # of a quotient by a subnormal number
        factor = float(np.median(a / e)) if (e != 0).all() else math.nan
        scaled = (np.abs(a - factor * e) <= 2 * allowed).all()
    if scaled:
        return f"each is {'the negative of' if factor == -1 else f'{factor:.6g} times'} the expected value"
    summand = float(np.median(a - e))
    if (np.abs(a - e - summand) <= 2 * allowed).all():
        return f"each is {abs(summand):.6g} too {'large' if summand > 0 else 'small'}"
    return ""


def _rounding(values: Array) -> float:
    """Return the relative error of rounding to a dtype."""
    return float(np.spacing(np.ones(1, values.dtype))[0]) if is_float(values.dtype) else 0.0


def _order(actual: Array, expected: Array, tolerance: Tolerance) -> str:
    """Return how the expected elements are in another order: transposed, shifted, reversed, or in any order."""
    if not 4 <= expected.size <= _LARGEST:
        return ""
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    if len(np.unique(e)) < max(4, e.size // 4):
        return ""

    def same(x: Array, y: Array) -> bool:
        if x.shape != y.shape:
            return False
        with np.errstate(invalid="ignore"):
            near = (np.abs(x - y) <= tolerance.atol + tolerance.rtol * np.abs(y)) | (x == y)
        return bool((near | (np.isnan(x) & np.isnan(y))).all())

    return next(_orders(a, e, same), "")


def _orders(a: Array, e: Array, same: Callable[[Array, Array], bool]) -> Iterator[str]:
    if 1 < e.ndim <= 4:
        for order in list(permutations(range(e.ndim)))[1:]:
            if same(a.ravel(), e.transpose(order).ravel()):
                yield f"the expected elements are there, transposed by {order}"
    for axis in range(e.ndim):
        if e.shape[axis] > 1 and same(a, np.flip(e, axis)):
            yield f"the expected elements are there, reversed along axis {axis}"
    for axis in range(e.ndim):
        x, y = np.moveaxis(a, axis, 0), np.moveaxis(e, axis, 0)
        if len(x) >= 4:  # of three, two are left to compare
            if same(x[1:], y[:-1]):
                yield f"each is the expected value one index before, along axis {axis}"
            if same(x[:-1], y[1:]):
                yield f"each is the expected value one index after, along axis {axis}"
    if same(np.sort(a.ravel()), np.sort(e.ravel())):
        yield "the expected values are there, in another order"


def _nth(number: int) -> str:
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
