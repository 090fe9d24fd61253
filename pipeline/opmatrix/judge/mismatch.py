"""What the report shows of a failing case: where the wrong elements are, how large the errors are, and some values.

The record of an output is a JSON object of at most some 30 kB, whatever the size of the output; docs/report.md
describes it. Only a case that fails is measured. `lines` are at most 14 for a terminal of 80 columns, in the words of
numpy.testing.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from opmatrix.data.arrays import Array, dtype_name, is_float, kind
from opmatrix.data.compare import EXACT, Pair, compare, elementwise, pattern
from opmatrix.declaration.models import graph_inputs
from opmatrix.search.drawn import DrawnCase
from opmatrix.signature.signature import dtype_of
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import Model, OpSpec, Tolerance

LEVELS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
"""The largest value of each level of a map, from its second digit on: 0 is an equal element."""

_MOST = 1 << 24  # elements of an output whose errors are sorted and mapped: this takes twenty times its memory
_NO_NUMBER = "f"  # the digit of a NaN or an infinity on one side, and of an error where the tolerance is 0
_MAP = 16_384  # digits of all maps
_SIDES = (64, 48, 32)  # digits of the side of a map, the most that leaves all maps within `_MAP`
_AXES = 6  # axes that are in maps, the largest
_WORST, _SAMPLED = 96, 160  # elements in `points`
_AROUND = 8  # elements on each side of the worst
_CUT = 200  # characters of a text


def of_case(
    spec: OpSpec, model: Model, case: str, inputs: Mapping[str, Array], names: Sequence[str], pairs: Iterable[Pair]
) -> dict[str, Any] | None:
    """Return the record of the worst output of the first pair that differs; None where all agree, or where one has
    more outputs. `names` are the outputs' names."""
    for pair in pairs:
        if len(pair.actual) != len(pair.expected):
            return None
        both = [*zip(pair.actual, pair.expected, pair.tolerances, strict=True)]
        found = [compare(actual, expected, tolerance=tolerance) for actual, expected, tolerance in both]
        if all(one.ok for one in found):
            continue
        worst = max(range(len(found)), key=lambda n: (bool(found[n].problem), found[n].tolerance_used))
        actual, expected, tolerance = both[worst]
        attributes = {part.name: model.attributes.get(part.name, part.default) for part in spec.attributes}
        return {
            "case": case,
            "model": model.name,
            "attributes": {name: _cut(repr(value)) for name, value in attributes.items()},
            "inputs": [{"name": n, "dtype": dtype_name(a), "shape": list(a.shape)} for n, a in inputs.items()],
            "output": names[worst],
            "actual_is": pair.actual_is,
            "expected_is": pair.expected_is,
            **measure(actual, expected, tolerance=tolerance),
        }
    return None


def of_drawn(
    spec: OpSpec, one: DrawnCase, runs: Mapping[str, Sequence[Array]], *, wrong: bool
) -> dict[str, Any] | None:
    """Return the record of a drawn case; None where its outputs agree. `runs` are the kernel's outputs by what each run
    is. `wrong`: the first run is compared with the reference. Else its outputs differ by rounding at most, and the
    other runs are compared with it."""
    if one.expected is None:
        return None
    (what, first), *others = runs.items()
    outputs = with_outputs(spec, len(one.expected)).outputs
    declared = [spec.tolerances["custom"][dtype_of(output.type, one.model.types)] for output in outputs]
    pairs = [Pair(what, first, f"reference in {one.precision}", one.expected, declared)] if wrong else []
    pairs += [Pair(name, again, what, first, [EXACT] * len(first)) for name, again in others]
    feeds = graph_inputs(spec, one.model, one.model.cases[0])
    inputs = {feed.name: array for feed, array in zip(feeds, one.arrays, strict=True)}
    return of_case(spec, one.model, one.model.name, inputs, [output.name for output in outputs], pairs)


def measure(actual: Array, expected: Array, *, tolerance: Tolerance) -> dict[str, Any]:
    """Return what a record has about one output: docs/report.md."""
    head = {
        "dtype": dtype_name(expected),
        "shape": list(expected.shape),
        "rtol": tolerance.rtol,
        "atol": tolerance.atol,
        "elements": expected.size,
    }
    found = compare(actual, expected, tolerance=tolerance)
    if found.problem or found.worst is None:
        return head | {"problem": found.problem, "differing": found.differing}
    if expected.size > _MOST:
        why = f"{found}; an output of more than {_MOST} elements has no map"
        return head | {"problem": why, "differing": found.differing}
    error, used, ulps = elementwise(actual, expected, tolerance=tolerance)
    # Without a tolerance each error uses all of it: the error itself says more.
    of_error = tolerance == EXACT
    # By the part of the tolerance, and among equal ones, such as infinities, by the error.
    worst_first = np.lexsort((error, used))[::-1]
    at = int(worst_first[0])
    return head | {
        "problem": "",
        "differing": found.differing,
        "worst": {"at": [int(i) for i in np.unravel_index(at, expected.shape)], **_point(at, actual, expected, error)}
        | {"ulp": _three(found.ulp), "tolerance_used": _three(float(used[at]))},
        "relative": _relative(error, expected),
        "pattern": pattern(actual, expected, tolerance=tolerance),
        "map_of": "error" if of_error else "tolerance_used",
        "levels": LEVELS,
        "maps": [*_maps((error if of_error else used).reshape(expected.shape))],
        "ulps": _histogram(ulps, expected.size),
        "points": _points(worst_first, int((used > 1).sum()), actual, expected, error),
        "around": _around(at, actual, expected),
    }


def _relative(error: Array, expected: Array) -> float | None:
    """Return the largest error as a part of the expected value; None where no expected value has one."""
    if expected.dtype == np.object_ or kind(expected.dtype) == "b":
        return None
    size = np.abs(expected.ravel().astype(np.float64))
    counted = np.isfinite(error) & np.isfinite(size) & (size > 0)
    with np.errstate(over="ignore"):
        return _three(float((error[counted] / size[counted]).max())) if counted.any() else None


def _maps(values: Array) -> list[dict[str, Any]]:
    """Return a map for each two axes: the level of the largest value over the other axes, a digit each.

    One axis alone is folded into rows; each digit is for `step` neighbours.
    """
    axes = [axis for axis, size in enumerate(values.shape) if size > 1]
    if len(axes) < 2:
        flat = values.ravel()
        width = _SIDES[0]
        step = max(1, math.ceil(flat.size / width**2))
        digits = _digits(np.maximum.reduceat(flat, np.arange(0, flat.size, step)))
        return [{"axes": axes, "step": step, "rows": [digits[i : i + width] for i in range(0, len(digits), width)]}]
    largest = sorted(sorted(axes, key=lambda axis: -values.shape[axis])[:_AXES])
    pairs = [*combinations(largest, 2)]
    side = next((side for side in _SIDES if len(pairs) * side**2 <= _MAP), _SIDES[-1])
    maps = []
    for pair in pairs:
        both = values.max(axis=tuple(axis for axis in range(values.ndim) if axis not in pair))
        for axis, size in enumerate(both.shape):
            both = np.maximum.reduceat(both, [size * i // min(size, side) for i in range(min(size, side))], axis=axis)
        maps.append({"axes": list(pair), "rows": [_digits(row) for row in both]})
    return maps


def _digits(values: Array) -> str:
    levels = np.searchsorted(LEVELS, values)
    return "".join(_NO_NUMBER if not np.isfinite(v) else f"{n:x}" for v, n in zip(values, levels, strict=True))


def _histogram(ulps: Array, elements: int) -> dict[str, Any]:
    """Return how many elements are equal, how many have an error up to each power of 2, and how many have no ULP, or
    more than float64 represents.

    ``counts[i]`` is for errors above ``2**(first + i - 1)`` up to ``2**(first + i)``.
    """
    known = ulps[np.isfinite(ulps)].astype(np.float64)
    exponents = np.ceil(np.log2(known[known > 0])).astype(int)
    first = int(exponents.min()) if exponents.size else 0
    return {
        "equal": int((known == 0).sum()),
        "without": elements - int(known.size),
        "first": first,
        "counts": np.bincount(exponents - first).tolist(),
    }


def _points(worst_first: Array, differing: int, actual: Array, expected: Array, error: Array) -> dict[str, Any]:
    """Return the worst elements, and some of all others, evenly spaced in memory."""
    worst = worst_first[: min(_WORST, max(differing, 1))]
    others = np.setdiff1d(np.linspace(0, expected.size - 1, min(_SAMPLED, expected.size)).astype(int), worst)
    chosen = [*worst.tolist(), *others.tolist()]
    rows = [_point(at, actual, expected, error) for at in chosen]
    return {"worst": len(worst), "at": chosen} | {key: [row[key] for row in rows] for key in rows[0]}


def _point(at: int, actual: Array, expected: Array, error: Array) -> dict[str, Any]:
    values = (_value(array.reshape(-1)[at]) for array in (expected, actual))
    return dict(zip(("expected", "actual", "error"), (*values, _three(float(error[at]))), strict=True))


def _around(at: int, actual: Array, expected: Array) -> dict[str, Any]:
    """Return the neighbours of the worst element along the last axis, and the index of the first of them there."""
    length = expected.shape[-1] if expected.shape else 1
    along = at % length
    low, high = max(0, along - _AROUND), min(length, along + _AROUND + 1)
    row = slice(at - along + low, at - along + high)
    both = {"expected": expected.reshape(-1)[row], "actual": actual.reshape(-1)[row]}
    return {"from": low, **{name: list(map(_value, values)) for name, values in both.items()}}


def _value(value: Any) -> float | int | bool | str:
    """Return a value for JSON in the fewest digits that identify it: ``"NaN"``, ``"Infinity"`` and integers that
    JavaScript would round are strings."""
    if isinstance(value, str):
        return _cut(value)
    dtype = value.dtype
    if dtype == np.bool_:
        return bool(value)
    if kind(dtype) in "iu":
        number = int(value)
        return number if abs(number) < 2**53 else str(number)
    shown = float(str(value)) if is_float(dtype) else float(value)
    if math.isnan(shown):
        return "NaN"
    return shown if math.isfinite(shown) else ("Infinity" if shown > 0 else "-Infinity")


def _three(number: float) -> float | None:
    """Return a number with three digits; None for NaN and infinities, which JSON does not have."""
    return float(f"{number:.3g}") if math.isfinite(number) else None


def _cut(text: str) -> str:
    return text if len(text) <= _CUT else f"{text[: _CUT - 3]}..."


_WIDTH = 78  # the messages of steps are indented by two
_LABEL = "  difference"


def lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a record of `opmatrix.judge.mismatch`."""
    limits = f", rtol={record['rtol']:g} atol={record['atol']:g}" if record["rtol"] or record["atol"] else ""
    yield from _wrapped(f"output {record['output']}: {record['dtype']} {tuple(record['shape'])}{limits}", 1)
    yield from _wrapped(f"actual: {record['actual_is']}; expected: {record['expected_is']}", 1)
    if record["problem"]:
        yield from _wrapped(f"Mismatch: {record['problem']}")
    elif "worst" in record:
        yield from _errors(record)
        yield from _around_worst(record)
    inputs = (f"{one['name']} {one['dtype']} {tuple(one['shape'])}" for one in record["inputs"])
    yield from _wrapped(f"inputs: {', '.join(inputs)}")
    if record["attributes"]:
        yield from _wrapped(f"attributes: {', '.join(f'{k}={v}' for k, v in record['attributes'].items())}", 1)


def _errors(record: Mapping[str, Any]) -> Iterator[str]:
    share = 100 * record["differing"] / record["elements"]
    yield f"Mismatched elements: {record['differing']} / {record['elements']} ({share:.3g}%)"
    worst = record["worst"]
    at = f" at {worst['at']}" if worst["at"] else ""
    if worst["error"] is None or record["dtype"] in ("string", "bool"):
        strange = "" if record["dtype"] in ("string", "bool") else ", with NaN or an infinity on one side"
        yield f"One of them{at}{strange}"
    else:
        yield f"Max absolute difference: {worst['error']:g}{at}"
    found = {"relative": record["relative"], "ULP": worst["ulp"]}
    if shown := [f"Max {name} difference: {value:g}" for name, value in found.items() if value]:
        yield ", ".join(shown)
    if record["pattern"]:
        yield from _wrapped(f"Mismatched: {record['pattern']}")


def _around_worst(record: Mapping[str, Any]) -> Iterator[str]:
    around, index = record["around"], record["worst"]["at"]
    at = index[-1] - around["from"] if index else 0
    columns = []
    for e, a in zip(around["expected"], around["actual"], strict=True):
        numbers = not any(isinstance(value, bool | str) for value in (e, a))
        columns.append((_number(e), _number(a), f"{a - e:.3g}" if numbers else ""))
    width = max(len(text) for column in columns for text in column) + 2
    room = max(1, min(len(columns), (_WIDTH - len(_LABEL)) // width))
    first = max(0, min(at - room // 2, len(columns) - room))
    begin = around["from"] + first
    shown = columns[first : first + room]
    if index:
        yield f"at [{', '.join([*map(str, index[:-1]), f'{begin}:{begin + len(shown)}'])}]"
    for label, row in zip(("expected", "actual", "difference"), zip(*shown, strict=True), strict=True):
        if any(row):
            yield f"{label:>{len(_LABEL)}}" + "".join(f"{text:>{width}}" for text in row)


def _number(value: Any) -> str:
    if isinstance(value, bool | str):
        text = value if value in ("NaN", "Infinity", "-Infinity") else repr(value)
        return text if len(text) <= 20 else f"{text[:17]}..."
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _wrapped(text: str, most: int = 2) -> list[str]:
    """Wrap at words; what takes more lines than `most` is cut."""
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", max_lines=most, placeholder=" ...")
