"""Values that break a `ValueRule` in one way each, made from values that obey it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from opmatrix.data.arrays import Array, integer_limits, is_float, rounded
from opmatrix.data.arrays import kind as kind_of
from opmatrix.sizes.values import limits
from opmatrix.spec import ValueRule

RuleKind = Literal[
    "below", "above", "not allowed", "not finite", "unordered", "repeated", "starting late", "ending early", "empty",
]  # fmt: skip


def kinds(rule: ValueRule, array: Array) -> set[RuleKind]:
    """Return the ways in which values of this dtype can break a rule."""
    real = is_float(array.dtype)
    low = 0 if rule.index_into is not None else rule.minimum
    smallest: Any = -math.inf if real else integer_limits(array.dtype).min if kind_of(array.dtype) in "iu" else None
    found: dict[RuleKind, bool] = {
        "below": low is not None and low != smallest,
        "above": rule.maximum is not None or rule.index_into is not None,
        "not allowed": rule.allowed is not None,
        "not finite": real and rule.finite,
        "unordered": rule.sorted is not None,
        "repeated": rule.unique,
        "starting late": rule.spans,
        "ending early": rule.spans,
        "empty": rule.non_empty,
    }
    return {kind for kind, possible in found.items() if possible}


def broken(rule: ValueRule, numbers: Mapping[str, float], array: Array) -> Iterator[tuple[RuleKind, str, Array]]:
    """Yield arrays that break a rule in one way: the way, what is wrong as printed, and the array of the same shape.

    `array` obeys the rule. A way is missing where a shape has too few elements for it, or where the dtype has no such
    value. "empty" is always missing, since it takes another shape.
    """
    if array.size:
        for kind, at, value in _wrong_values(rule, numbers, array):
            yield kind, f"{value!s} at {_place(array, at)}", _with(array, {at: value})
    if array.ndim and array.shape[-1] > 1:
        inner = 1 if rule.spans else 0  # keeps the ends, so that it is not they that are wrong
        last, before = array.size - 1 - inner, array.size - 2 - inner
        least, most = array.min(), array.max()
        if rule.sorted and least != most and array.shape[-1] > 1 + 2 * inner:
            pair = {before: most, last: least} if rule.sorted == "ascending" else {before: least, last: most}
            made = _with(array, pair)
            yield "unordered", f"{made.flat[last]!s} after {made.flat[before]!s} at {_place(array, last)}", made
        if rule.unique and array.shape[-1] > 1 + inner:
            made = _with(array, {last: array.flat[before]})
            yield "repeated", f"{made.flat[last]!s} twice at {_place(array, last)}", made
        if rule.spans and least != most:
            yield from _wrong_ends(rule, array)


def _wrong_ends(rule: ValueRule, array: Array) -> Iterator[tuple[RuleKind, str, Array]]:
    """Yield arrays with the last row starting late, and with the first one ending early: by the least step, in order.

    A check that takes the whole array for one row finds neither. A way is missing where unique values leave no room.
    """
    length = array.shape[-1]
    ways: tuple[tuple[RuleKind, int, int, int, int], ...] = (
        ("starting late", array.size - length, 0, 1, -1), ("ending early", 0, -1, -2, 0),
    )  # fmt: skip
    for kind, begin, end, neighbour, other in ways:
        row = array.ravel()[begin : begin + length]
        if kind_of(row.dtype) in "iu":
            value = row.dtype.type(int(row[end]) + (1 if row[other] > row[end] else -1))
        else:
            value = np.nextafter(row[end], row[other])
        if rule.unique and value == row[neighbour]:
            continue
        made = _with(array, {begin + int(at): value for at in np.flatnonzero(row == row[end])})
        yield kind, f"{value!s} at {_place(array, begin + end % length)}", made


def _wrong_values(rule: ValueRule, numbers: Mapping[str, float], array: Array) -> Iterator[tuple[RuleKind, int, Any]]:
    """Yield wrong values, and where they stand: so that the order stays right, or at the end, which a loop may miss."""
    found, dtype = limits(rule, numbers), array.dtype
    first, last = (array.size - 1, 0) if rule.sorted == "descending" else (0, array.size - 1)
    beyond: tuple[tuple[RuleKind, float | None, int, float], ...] = (
        ("below", found.minimum, first, -1), ("above", found.maximum, last, 1),
    )  # fmt: skip
    for kind, limit, at, step in beyond:
        if limit is None:
            continue
        if is_float(dtype):
            endless = dtype.type(step * math.inf)
            yield kind, at, np.nextafter(rounded(np.array(limit, np.float64), dtype), endless)
            yield kind, at, endless
            continue
        ends = integer_limits(dtype)
        end = int(ends.min if step < 0 else ends.max)
        if int(limit) != end:
            yield from ((kind, at, dtype.type(value)) for value in dict.fromkeys((int(limit) + int(step), end)))
    if is_float(dtype) and (rule.finite or found.minimum is not None or found.maximum is not None):
        wrong: tuple[RuleKind, tuple[float, ...]] = ("not finite", (math.nan, math.inf, -math.inf))
        if not rule.finite:
            wrong = ("below" if found.minimum is not None else "above", (math.nan,))
        yield from ((wrong[0], last, dtype.type(value)) for value in wrong[1])
    if rule.allowed is not None:
        others = range(math.floor(min(rule.allowed)) - 1, math.floor(max(rule.allowed)) + 2)
        ends = None if is_float(dtype) else integer_limits(dtype)
        possible = (n for n in others if n not in rule.allowed and (ends is None or ends.min <= n <= ends.max))
        yield from (("not allowed", last, dtype.type(n)) for n in list(possible)[:3])


def _with(array: Array, values: Mapping[int, Any]) -> Array:
    copy = array.copy()
    for index, value in values.items():
        copy.flat[index] = value
    return copy


def _place(array: Array, index: int) -> tuple[int, ...]:
    return tuple(int(n) for n in np.unravel_index(index, array.shape))
