"""Random values that obey the `ValueRule` of an input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opmatrix.declaration.value_rules import Limits, described, described_ends, ends, limits
from opmatrix.errors import DataError
from opmatrix.spec import DType, Random, ValueRule
from opmatrix.testdata.arrays import Array, array, cast, dtype_name, standard_normal, with_specials
from opmatrix.testdata.blocks import BLOCK, slices
from opmatrix.testdata.dtypes import float_limits, integer_limits, kind, numpy_dtype, rounded

Numbers = Mapping[str, float]

SPREAD = 1.702  # with which the logistic function is the normal distribution's, within 0.01


def random_values(tensor: Random, rule: ValueRule, numbers: Numbers, dtype: DType, *, seed_of: str) -> Array:
    """Return values that obey a rule, of the tensor's shape. Raises DataError where no value does.

    Between two limits, or among allowed values, they are uniformly distributed for a mean of 0 and a deviation of 1; a
    large deviation gives the ends, a large mean one end, a deviation of 0 equal values. With one limit, the normal
    distribution is folded there. The first and the last value of a rule that `spans` are its limits. `specials` replace
    values at the end, whether they obey or not.
    """
    shape, found = tensor.shape, limits(rule, numbers)
    if dtype == "bool":
        return array(tensor, dtype, seed_of=seed_of)
    normal = standard_normal(shape, seed_of)
    normal *= tensor.deviation  # in place, since it may be large
    normal += tensor.mean
    if not normal.size:
        return np.zeros(shape, numpy_dtype(dtype))
    if found.minimum is not None and found.maximum is not None and found.minimum > found.maximum:
        raise DataError(f"no value is {described(rule)}: that is {found.minimum} to {found.maximum} here, and the "
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
        low, high = _range_of_integers(rows, found, dtype)
        values = _by_block(
            lambda part: _whole(part, low, high, unique=rule.unique).astype(numpy_dtype(dtype)), rows, rule, dtype
        )
    else:
        values = _by_block(lambda part: _real(part, found, dtype), rows, rule, dtype)
        values = _apart(np.sort(values, axis=1), found) if rule.unique else values
    if rule.sorted:
        values = np.sort(values, axis=1)[:, :: 1 if rule.sorted == "ascending" else -1]
    elif rule.unique:
        order = np.argsort(standard_normal(values.shape, f"{seed_of}/order").reshape(values.shape), axis=1)
        values = np.take_along_axis(values, order, 1)
    if rule.spans:
        values = with_ends(values, rule, found)
    return with_specials(np.ascontiguousarray(values).ravel(), tensor, dtype).reshape(shape)


def _by_block(values_of: Callable[[Array], Array], rows: Array, rule: ValueRule, dtype: DType) -> Array:
    """Return the values for rows, which are those of their blocks where no value depends on another one."""
    if rule.unique or rows.size <= BLOCK:
        return values_of(rows)
    values, normal = np.empty(rows.size, numpy_dtype(dtype)), rows.ravel()
    for block in slices(rows.size):
        values[block] = values_of(normal[block].reshape(1, -1)).ravel()
    return values.reshape(rows.shape)


def with_ends(values: Array, rule: ValueRule, found: Limits) -> Array:
    """Return values whose first and last ones along the last axis are as a rule that `spans` says.

    Raises DataError where these are different and there is one value.
    """
    dtype: Any = dtype_name(values)
    first, last = cast(np.array(ends(rule, (found.minimum, found.maximum)), np.longdouble), dtype)
    if values.shape[-1] == 1 and first != last:
        raise DataError(f"one value along the last axis cannot {described_ends(rule)}: that is {first} and {last} here")
    values = values.copy()
    values[..., 0], values[..., -1] = first, last
    return values


def _range_of_integers(rows: Array, found: Limits, dtype: DType) -> tuple[int, int]:
    """Return the range to draw from: where a limit is missing, as many numbers beyond the other as `rows` spread."""
    bounds = integer_limits(dtype)
    spread = max(int(np.ceil(max(rows.max(initial=1.0), -rows.min(initial=-1.0)) * 3)), rows.shape[1])
    low = -spread if found.minimum is None else int(found.minimum)
    high = low + 2 * spread if found.maximum is None else int(found.maximum)
    low = high - 2 * spread if found.minimum is None and found.maximum is not None else low
    return max(low, int(bounds.min)), min(high, int(bounds.max))


def _whole(rows: Array, low: int, high: int, *, unique: bool) -> Array:
    """Return whole numbers from `low` to `high` for normal values; `unique` ones differ in rows that ascend."""
    length = rows.shape[1]
    top = high - (length - 1) if unique else high
    if top < low:
        raise DataError(f"{length} values along the last axis cannot differ: only {high - low + 1} are allowed")
    steps = np.floor(_shares(rows) * float(top - low + 1))
    if low > -(2**52) and high < 2**52:
        found = np.minimum(steps.astype(np.int64), top - low) + low
    else:  # Python's integers, since float64 cannot represent each
        found = np.array([[min(int(step), top - low) + low for step in row] for row in steps], dtype=object)
    return found + np.arange(length) if unique else found


def _real(rows: Array, found: Limits, dtype: DType) -> Array:
    """Return floats within the limits, rounded to `dtype`."""
    low, high = found.minimum, found.maximum
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


def _apart(values: Array, found: Limits) -> Array:
    """Return ascending rows of floats in which equal neighbours are moved apart, within the limits."""
    limits = float_limits(values.dtype)
    upward, downward = limits.max, limits.min  # nextafter leaves these as they are, and not every dtype has infinities
    values = values.copy()
    for column in range(1, values.shape[1]):
        values[:, column] = np.maximum(values[:, column], np.nextafter(values[:, column - 1], upward))
    if found.maximum is not None and values.size:
        values[:, -1] = np.minimum(values[:, -1], rounded(np.array(found.maximum, np.float64), values.dtype))
        for column in range(values.shape[1] - 2, -1, -1):
            values[:, column] = np.minimum(values[:, column], np.nextafter(values[:, column + 1], downward))
    return values


def _shares(normal: Array) -> Array:
    """Return the part of the normal distribution below each value, from 0 to 1."""
    shares: Array = 1 / (1 + np.exp(np.clip(-SPREAD * normal, -700, 700)))
    return np.where(shares < 1e-12, 0.0, shares)
