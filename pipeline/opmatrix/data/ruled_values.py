"""Random values that obey the `ValueRule` of an input, and the check of others, as bindings do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opmatrix.basics.errors import DataError
from opmatrix.data import arrays
from opmatrix.data.arrays import Array, cast, dtype_name, kind, numpy_dtype, rounded, standard_normal
from opmatrix.project.dtypes import FOUR_BITS
from opmatrix.sizes.rules import owner
from opmatrix.sizes.values import Limits, described, described_ends, described_order, ends, limit_terms, limits
from opmatrix.spec import DType, Input, OpSpec, Random, ValueRule

Numbers = Mapping[str, float]

SPREAD = 1.702  # with which the logistic function is the normal distribution's, within 0.01


def random_values(tensor: Random, rule: ValueRule, numbers: Numbers, dtype: DType, *, seed_of: str) -> Array:
    """Return values that obey a rule, of the tensor's shape. Raises DataError where no value does.

    Between two limits, or among allowed values, they are uniformly distributed for a mean of 0 and a deviation of 1; a
    large deviation gives the ends, a large mean one end, a deviation of 0 equal values. With one limit, the normal
    distribution is folded there. The first and the last value of a rule that `spans` are its limits. `specials` replace
    values at the end, whether they obey or not.
    """
    shape, bounds = tensor.shape, limits(rule, numbers)
    if dtype == "bool":
        return arrays.array(tensor, dtype, seed_of=seed_of)
    normal = standard_normal(shape, seed_of)
    normal *= tensor.deviation  # in place, since it may be large
    normal += tensor.mean
    if not normal.size:
        return np.zeros(shape, numpy_dtype(dtype))
    if bounds.minimum is not None and bounds.maximum is not None and bounds.minimum > bounds.maximum:
        raise DataError(f"no value is {described(rule)}: that is {bounds.minimum} to {bounds.maximum} here, and the "
                        f"shape {shape} has {normal.size} elements")  # fmt: skip
    rows = normal.reshape(-1, shape[-1] if shape else 1)
    if rule.sorted or rule.unique:
        rows = np.sort(rows, axis=1)
    if rule.allowed is not None:
        choices = cast(np.sort(np.array(rule.allowed, np.longdouble)), dtype)
        values = _by_block(
            lambda part: choices[_whole(part, 0, len(choices) - 1, unique=rule.unique)], rows, rule, dtype
        )
    elif kind(numpy_dtype(dtype)) in "iu":
        low, high = _range_of_integers(rows, bounds, dtype)
        values = _by_block(
            lambda part: _whole(part, low, high, unique=rule.unique).astype(numpy_dtype(dtype)), rows, rule, dtype
        )
    else:
        values = _by_block(lambda part: _real(part, bounds, dtype), rows, rule, dtype)
        values = _apart(np.sort(values, axis=1), bounds) if rule.unique else values
    if rule.sorted:
        values = np.sort(values, axis=1)[:, :: 1 if rule.sorted == "ascending" else -1]
    elif rule.unique:
        order = np.argsort(standard_normal(values.shape, f"{seed_of}/order").reshape(values.shape), axis=1)
        values = np.take_along_axis(values, order, 1)
    if rule.spans:
        values = with_ends(values, rule, bounds)
    return arrays.with_specials(np.ascontiguousarray(values).ravel(), tensor, dtype).reshape(shape)


def _by_block(values_of: Callable[[Array], Array], rows: Array, rule: ValueRule, dtype: DType) -> Array:
    """Return the values for rows, which are those of their blocks where no value depends on another one."""
    if rule.unique or rows.size <= arrays.BLOCK:
        return values_of(rows)
    values, normal = np.empty(rows.size, numpy_dtype(dtype)), rows.ravel()
    for block in arrays.slices(rows.size):
        values[block] = values_of(normal[block].reshape(1, -1)).ravel()
    return values.reshape(rows.shape)


def with_ends(values: Array, rule: ValueRule, bounds: Limits) -> Array:
    """Return values whose first and last ones along the last axis are as a rule that `spans` says.

    Raises DataError where these are different and there is one value.
    """
    dtype: Any = dtype_name(values)
    first, last = cast(np.array(ends(rule, (bounds.minimum, bounds.maximum)), np.longdouble), dtype)
    if values.shape[-1] == 1 and first != last:
        raise DataError(f"one value along the last axis cannot {described_ends(rule)}: that is {first} and {last} here")
    values = values.copy()
    values[..., 0], values[..., -1] = first, last
    return values


def _range_of_integers(rows: Array, bounds: Limits, dtype: DType) -> tuple[int, int]:
    """Return the range to draw from: where a limit is missing, as many numbers beyond the other as `rows` spread."""
    of_dtype = arrays.integer_limits(dtype)
    spread = max(int(np.ceil(max(rows.max(initial=1.0), -rows.min(initial=-1.0)) * 3)), rows.shape[1])
    low = -spread if bounds.minimum is None else int(bounds.minimum)
    high = low + 2 * spread if bounds.maximum is None else int(bounds.maximum)
    low = high - 2 * spread if bounds.minimum is None and bounds.maximum is not None else low
    return max(low, int(of_dtype.min)), min(high, int(of_dtype.max))


def _whole(rows: Array, low: int, high: int, *, unique: bool) -> Array:
    """Return whole numbers from `low` to `high` for normal values; `unique` ones differ in rows that ascend."""
    length = rows.shape[1]
    top = high - (length - 1) if unique else high
    if top < low:
        raise DataError(f"{length} values along the last axis cannot differ: only {high - low + 1} are allowed")
    steps = np.floor(_shares(rows) * float(top - low + 1))
    if low > -(2**52) and high < 2**52:
        numbers = np.minimum(steps.astype(np.int64), top - low) + low
    else:  # Python's integers, since float64 cannot represent each
        numbers = np.array([[min(int(step), top - low) + low for step in row] for row in steps], dtype=object)
    return numbers + np.arange(length) if unique else numbers


def _real(rows: Array, bounds: Limits, dtype: DType) -> Array:
    low, high = bounds.minimum, bounds.maximum
    if low is not None and high is not None:
        shares = _shares(rows)
        values = low * (1 - shares) + high * shares
    elif low is not None:
        values = low + np.abs(rows)
    elif high is not None:
        values = high - np.abs(rows)
    else:
        values = rows
    made = cast(values, dtype)
    least = None if low is None else cast(np.array(low, np.float64), dtype)
    most = None if high is None else cast(np.array(high, np.float64), dtype)
    within = made if least is most is None else np.clip(made, least, most)  # rounding may have crossed a limit
    return within.astype(made.dtype)  # numpy.clip gives float32 for bfloat16


def _apart(values: Array, bounds: Limits) -> Array:
    """Return ascending rows of floats in which equal neighbours are moved apart, within the limits."""
    limits = arrays.float_limits(values.dtype)
    upward, downward = limits.max, limits.min  # nextafter leaves these as they are, and not every dtype has infinities
    values = values.copy()
    for column in range(1, values.shape[1]):
        values[:, column] = np.maximum(values[:, column], np.nextafter(values[:, column - 1], upward))
    if bounds.maximum is not None and values.size:
        values[:, -1] = np.minimum(values[:, -1], rounded(np.array(bounds.maximum, np.float64), values.dtype))
        for column in range(values.shape[1] - 2, -1, -1):
            values[:, column] = np.minimum(values[:, column], np.nextafter(values[:, column + 1], downward))
    return values


def _shares(normal: Array) -> Array:
    shares: Array = 1 / (1 + np.exp(np.clip(-SPREAD * normal, -700, 700)))
    return np.where(shares < 1e-12, 0.0, shares)


@np.errstate(invalid="ignore")  # ml_dtypes warns where a NaN is compared
def problem(spec: OpSpec, part: Input, numbers: Mapping[str, float], array: Array) -> str:
    """Return how an array breaks the rule of an input, in the words of the bindings' messages, or ""."""
    rule = part.values
    if rule is None:
        return ""
    if rule.non_empty and not array.size:
        return f"must have at least one element, got shape {array.shape}"
    if rule.spans and array.ndim and not array.shape[-1]:
        return f"must have at least one element along its last axis, got shape {array.shape}"
    if dtype_name(array) in FOUR_BITS:  # which have not all limits
        array = array.astype(np.int8)
    wrong = _wrong_values(rule, numbers, array)
    if wrong.any():
        place = _first(wrong)
        return f"must be {described(rule)}{_with_names(spec, part, rule, numbers)}, got {array[place]!s} at {place}"
    if array.ndim and (rule.sorted or rule.unique) and (unordered := _unordered(rule, array)).any():
        place = _first(unordered)
        return f"must be {described_order(rule)} along its last axis, got {array[place]!s} at {place}"
    if rule.spans and (wrong := _wrong_ends(rule, numbers, array)).any():
        place, shown = _first(wrong), _with_names(spec, part, rule, numbers)
        return f"must {described_ends(rule)} along its last axis{shown}, got {array[place]!s} at {place}"
    return ""


def _wrong_values(rule: ValueRule, numbers: Mapping[str, float], array: Array) -> Array:
    found, wrong = limits(rule, numbers), np.zeros(array.shape, bool)
    if found.minimum is not None:
        wrong |= ~(array >= _rounded(found.minimum, array))
    if found.maximum is not None:
        wrong |= ~(array <= _rounded(found.maximum, array))
    if rule.allowed is not None:
        wrong |= ~np.isin(array, [_rounded(n, array) for n in rule.allowed])
    if rule.finite:
        wrong |= ~np.isfinite(array)
    return wrong


def _wrong_ends(rule: ValueRule, numbers: Mapping[str, float], array: Array) -> Array:
    """Return where the first value along the last axis, or the last one, is not the limit that it must be."""
    found = limits(rule, numbers)
    rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    wrong = np.zeros(rows.shape, bool)
    for at, end in zip((0, -1), ends(rule, (found.minimum, found.maximum)), strict=True):
        assert end is not None
        wrong[:, at] |= rows[:, at] != _rounded(end, array)
    return wrong.reshape(array.shape)


def _rounded(limit: float, array: Array) -> Any:
    """Return a limit as the bindings compare with it: rounded to the dtype of floats, whole for integers."""
    return int(limit) if kind(array.dtype) in "iu" else rounded(np.array(limit, np.float64), array.dtype)


def _unordered(rule: ValueRule, array: Array) -> Array:
    """Return where an element is not in order with the one before it, or repeats an earlier one."""
    unordered = np.zeros(array.shape, bool)
    before, after = array[..., :-1], array[..., 1:]
    if rule.sorted is None:
        order = np.argsort(array, axis=-1, kind="stable")
        ordered = np.take_along_axis(array, order, -1)
        repeated = np.concatenate([unordered[..., :1], ordered[..., 1:] == ordered[..., :-1]], -1)
        np.put_along_axis(unordered, order, repeated, -1)
    elif rule.sorted == "ascending":
        unordered[..., 1:] = ~(before < after) if rule.unique else ~(before <= after)
    else:
        unordered[..., 1:] = ~(before > after) if rule.unique else ~(before >= after)
    return unordered


def _first(wrong: Array) -> tuple[int, ...]:
    return tuple(int(n) for n in np.argwhere(wrong)[0])


def _with_names(spec: OpSpec, part: Input, rule: ValueRule, numbers: Mapping[str, float]) -> str:
    """Return `` with N = 3 as in x``."""
    owned = [(term.key, owner(spec, term)) for term in limit_terms(rule)]
    shown = [
        f"{name} = {numbers[name]:g}" + (f" as in {source}" if source not in ("", part.name) else "")
        for name, source in owned
    ]
    return f" with {' and '.join(shown)}" if shown else ""
