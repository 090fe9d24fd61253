"""Check arrays against the `ValueRule` of an input, as bindings do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opmatrix.declaration.torch_signature import FOUR_BITS
from opmatrix.declaration.value_rules import described, described_ends, described_order, ends, limits, names
from opmatrix.spec import Input, OpSpec, ValueRule
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.dtypes import kind, rounded


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
    found = limits(rule, numbers)
    wrong = np.zeros(array.shape, bool)
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
    found = np.zeros(array.shape, bool)
    before, after = array[..., :-1], array[..., 1:]
    if rule.sorted is None:
        order = np.argsort(array, axis=-1, kind="stable")
        ordered = np.take_along_axis(array, order, -1)
        repeated = np.concatenate([found[..., :1], ordered[..., 1:] == ordered[..., :-1]], -1)
        np.put_along_axis(found, order, repeated, -1)
    elif rule.sorted == "ascending":
        found[..., 1:] = ~(before < after) if rule.unique else ~(before <= after)
    else:
        found[..., 1:] = ~(before > after) if rule.unique else ~(before >= after)
    return found


def _first(wrong: Array) -> tuple[int, ...]:
    return tuple(int(n) for n in np.argwhere(wrong)[0])


def _with_names(spec: OpSpec, part: Input, rule: ValueRule, numbers: Mapping[str, float]) -> str:
    """Return `` with N = 3 as in x``."""
    shown = [
        f"{n.name} = {numbers[n.name]:g}" + (f" as in {n.owner}" if n.owner not in ("", part.name) else "")
        for n in names(spec, rule)
    ]
    return f" with {' and '.join(shown)}" if shown else ""
