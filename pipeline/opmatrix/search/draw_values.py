"""Draw the values of inputs: every memory layout, NaN, infinities, denormals, tiny and huge numbers.

Some tensors have ties: few different values, equal to values of attributes and of other inputs, at the same places.
Sorts, maxima, thresholds and comparisons of two inputs have their faults there: ``>=`` in place of ``>``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from random import Random as Generator
from typing import Any

from hypothesis import assume, strategies
from hypothesis.strategies import DrawFn

from opmatrix.data.arrays import float_limits, has_infinity, integer_limits, is_float
from opmatrix.search.attribute_candidates import STRINGS
from opmatrix.search.draw_attributes import FAR, Frame, nested, pick
from opmatrix.signature.signature import is_parameter
from opmatrix.sizes.values import limit_expressions, limit_terms
from opmatrix.spec import Case, DType, Input, MemoryLayout, Nested, Random, Tensor, ValueRule, Values, tensors_of

LISTED = 24  # a tensor of at most so many elements has only tied values
TIED = 12  # elements of a larger one
_PATTERNS = 15


def tied(draw: DrawFn, frame: Frame, dtype: DType, shape: tuple[int, ...]) -> Tensor | None:
    """Return a tensor with ties in one of four draws, else None."""
    count = math.prod(shape)
    if dtype in ("bool", "string") or not count or pick(draw, (False, False, False, True)) is False:
        return None
    values = few(frame, dtype)
    first = draw(strategies.integers(0, len(values) - 1))
    distinct = [values[(first + n) % len(values)] for n in range(pick(draw, (2, 3, 1)))]
    layout = pick(draw, _NOT_EXPANDED)
    random = Generator(pick(draw, range(_PATTERNS)))  # few patterns, so that inputs of one shape have the same
    if count <= LISTED:
        return Values(values=nested([random.choice(distinct) for _ in range(count)], shape), layout=layout)
    specials = {random.randrange(count): random.choice(distinct) for _ in range(TIED)}
    return Random(
        shape=shape, deviation=2.0, mean=5.0 if dtype.startswith("u") else 0.0, specials=specials, layout=layout
    )


def few(frame: Frame, dtype: DType) -> list[Any]:
    """Return values that a kernel may compare with: attributes, 0, 1, 2 and their like, and its infinities."""
    if is_float(dtype):
        limit = float(float_limits(dtype).max)
        finite = dict.fromkeys(float(n) for n in (*frame.numbers, 1.0, 0.0, 0.5, -1.0, 2.0) if abs(n) <= limit)
        return [*finite, *((math.inf, -math.inf) if has_infinity(dtype) else ())]
    limits = integer_limits(dtype)
    near = [n for number in frame.numbers if number == int(number) for n in (number, number + 1, number - 1)]
    return [*dict.fromkeys(int(n) for n in (*near, 1, 0, 2, -1, 3) if limits.min <= n <= limits.max)]


LAYOUTS: tuple[MemoryLayout, ...] = ("contiguous", "transposed", "sliced", "expanded", "flipped")
_NOT_EXPANDED: tuple[MemoryLayout, ...] = ("contiguous", "transposed", "sliced", "flipped")
SPECIALS = 5  # per tensor, at most


def tensor(draw: DrawFn, frame: Frame, part: Input, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """Return a description of one tensor of an input."""
    if part.values is not None:
        return _ruled(draw, frame, part, part.values, dtype, shape)
    if dtype == "string":
        return _strings(draw, frame, shape)
    if is_parameter(part):
        return _parameter(draw, frame, part, dtype, shape)
    if dtype == "bool":
        return Random(shape=shape, layout=pick(draw, _NOT_EXPANDED))
    if (equal := tied(draw, frame, dtype, shape)) is not None:
        return equal
    unsigned = ((8.0, 4.0),) if dtype == "uint4" else ((20.0, 3.0),)  # of four bits, each of the 16 values
    scales = _float_scales(frame, dtype) or (unsigned if dtype.startswith("uint") else ((0.0, 3.0), (0.0, 20.0)))
    mean, deviation = pick(draw, scales)
    # A NaN hides how exact a kernel is for the values around it.
    count = draw(strategies.integers(0, min(SPECIALS, math.prod(shape)))) if pick(draw, (False, True)) else 0
    specials = {draw(strategies.integers(0, math.prod(shape) - 1)): pick(draw, _specials(dtype)) for _ in range(count)}
    layout = pick(draw, LAYOUTS)
    if layout == "expanded":  # all elements are equal
        assume(any(size > 1 for size in shape))
        return Random(shape=shape, mean=mean, deviation=0.0, layout=layout)
    return Random(shape=shape, mean=mean, deviation=deviation, specials=specials, layout=layout)


_DISTINCT = 256  # drawn strings of all tensors of an example together; in each tensor they repeat


def _strings(draw: DrawFn, frame: Frame, shape: tuple[int, ...]) -> Tensor:
    """Return strings: those of the cases, unusual ones, and such that are put together of both."""
    # hypothesis drops an example of more than 8 kB of choices, and draws another.
    inputs, types = frame.operator.spec.inputs, frame.operator.spec.types
    distinct = max(1, _DISTINCT // sum("string" in types.get(i.type, (i.type,)) for i in inputs))
    count = math.prod(shape)
    if not count or pick(draw, (False, False, False, True)):
        return Random(shape=shape)
    tensors = [
        t for case in _cases(frame) for name in case.inputs for t in tensors_of(case, name) if isinstance(t, Values)
    ]
    seen = [*dict.fromkeys(text for tensor in tensors for text in _texts(tensor.values))][:_DISTINCT]
    words = (*STRINGS, *seen)
    sources = [words, seen, seen] if seen else [words]

    def word() -> str:
        return str(pick(draw, pick(draw, sources)))

    drawn = [word() if pick(draw, (True, True, False)) else word() + word() for _ in range(min(count, distinct))]
    return Values(values=nested([drawn[n % len(drawn)] for n in range(count)], shape))


def _cases(frame: Frame) -> list[Case]:
    return [frame.template[1]] if frame.template else [c for m in frame.operator.models for c in m.cases]


def _numbers(frame: Frame, part: Input) -> list[Tensor]:
    """Return the tensors of an input whose values the cases list, where these are no strings."""
    found = (t for case in _cases(frame) for t in tensors_of(case, part.name) if isinstance(t, Values))
    return [t for t in found if not any(True for _ in _texts(t.values))]


def _texts(values: Nested) -> Iterator[str]:
    if isinstance(values, tuple):
        for value in values:
            yield from _texts(value)
    elif isinstance(values, str):
        yield values


# Mean and deviation for a range (see ruled_values.py): uniform in it, mostly its ends, all at one end.
_SPREADS = ((0.0, 1.0), (0.0, 1.0), (0.0, 10.0), (0.0, 10.0), (-1000.0, 0.0), (1000.0, 0.0))


def _ruled(draw: DrawFn, frame: Frame, part: Input, rule: ValueRule, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """Return values that obey a rule, the ends of its range among them.

    The limits may depend on sizes and attributes that are not drawn yet, so the values are described, and made later.
    """
    assume(not rule.non_empty or math.prod(shape) > 0)
    assume(not rule.spans or shape[-1:] != (0,))
    if dtype == "string":
        return _strings(draw, frame, shape)
    if dtype == "bool":
        return Random(shape=shape, layout=pick(draw, _NOT_EXPANDED))
    if is_parameter(part) and not limit_terms(rule):  # a value of a case is right for all sizes
        seen = [*dict.fromkeys(_numbers(frame, part))]
        if seen and pick(draw, (True, False)):
            kept: Tensor = pick(draw, seen)
            return kept
    layout = pick(draw, _NOT_EXPANDED if rule.unique or rule.spans else LAYOUTS)
    low, high = limit_expressions(rule)
    between = rule.allowed is not None or (low is not None and high is not None)
    scales = () if between else _float_scales(frame, dtype)
    spreads = (*scales, (0.0, 0.0)) if scales else _SPREADS
    if layout == "expanded":  # all elements are equal
        assume(any(size > 1 for size in shape))
        return Random(shape=shape, mean=pick(draw, spreads)[0], deviation=0.0, layout=layout)
    mean, deviation = pick(draw, [found for found in spreads if found[1] or not rule.unique])
    specials: dict[int, float] = {}
    if found := _allowed_specials(rule, dtype):
        count = draw(strategies.integers(0, min(SPECIALS, math.prod(shape))))
        drawn = ((draw(strategies.integers(0, math.prod(shape) - 1)), pick(draw, found)) for _ in range(count))
        # In a sorted row an infinity is at an end.
        length = shape[-1] if shape else 1
        for at, special in drawn:
            if rule.sorted:
                at -= at % length if shape else 0
                at += 0 if (special < 0) == (rule.sorted == "ascending") else length - 1
            specials[at] = special
    return Random(shape=shape, mean=mean, deviation=deviation, specials=specials, layout=layout)


def _allowed_specials(rule: ValueRule, dtype: DType) -> list[float]:
    """Return the special values that a rule allows, whatever the sizes are."""
    low, high = limit_expressions(rule)
    if rule.allowed is not None or rule.unique or (low is not None and high is not None):
        return []
    found = [special for special in _specials(dtype) if not (rule.finite and not math.isfinite(special))]
    if low is None and high is None:
        return [special for special in found if math.isinf(special)] if rule.sorted else found
    return [special for special in found if special == (math.inf if high is None else -math.inf)]


def _parameter(draw: DrawFn, frame: Frame, part: Input, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of one element: one of the cases, 1 or a size, or in one of ten draws a special value."""
    number = dtype not in ("bool", "string")
    real = is_float(dtype)
    likely = [Values(values=nested([float(n) if real else n], shape)) for n in (1, *frame.sizes.values()) if number]
    unlikely = [Values(values=nested([n], shape)) for n in _specials(dtype)] if number else []
    usual: list[Tensor] = [*dict.fromkeys((*_numbers(frame, part), *likely))] or [Random(shape=shape)]
    chosen: Tensor = pick(draw, unlikely if unlikely and draw(strategies.integers(0, 9)) == 9 else usual)
    return chosen


# Mean and deviation. A product of two of the largest, or of the smallest, still fits the dtype: a kernel that computes
# the formula in its own precision is correct, and need not avoid overflow.
_FLOAT_SCALES: Mapping[DType, tuple[tuple[float, float], ...]] = {
    "float32": ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-15), (0.0, 1e15), (-1e6, 100.0)),
    "float64": ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-100), (0.0, 1e100), (-1e6, 100.0)),
    "float16": ((0.0, 1.0), (10.0, 1.0), (0.0, 0.01), (0.0, 30.0)),
    "bfloat16": ((0.0, 1.0), (100.0, 1.0), (0.0, 1e-15), (0.0, 1e15)),
    "float8_e4m3fn": ((0.0, 1.0), (4.0, 1.0), (0.0, 0.03), (0.0, 4.0)),
    "float8_e5m2": ((0.0, 1.0), (8.0, 1.0), (0.0, 0.01), (0.0, 40.0)),
    "float8_e4m3fnuz": ((0.0, 1.0), (4.0, 1.0), (0.0, 0.03), (0.0, 3.0)),
    "float8_e5m2fnuz": ((0.0, 1.0), (8.0, 1.0), (0.0, 0.01), (0.0, 40.0)),
}
# With OpSpec.full_range: the square of a large one overflows, and that of a small one vanishes.
_FULL_RANGE: Mapping[DType, tuple[tuple[float, float], ...]] = {
    "float32": ((0.0, 1e28), (0.0, 1e-28)),
    "float64": ((0.0, 1e231), (0.0, 1e-231)),
    "float16": ((0.0, 3e3), (0.0, 1e-5)),
    "bfloat16": ((0.0, 1e28), (0.0, 1e-28)),
    "float8_e4m3fn": ((0.0, 60.0), (0.0, 0.005)),
    "float8_e5m2": ((0.0, 3e3), (0.0, 1e-4)),
    "float8_e4m3fnuz": ((0.0, 30.0), (0.0, 0.005)),
    "float8_e5m2fnuz": ((0.0, 3e3), (0.0, 1e-4)),
}


def _float_scales(frame: Frame, dtype: DType) -> tuple[tuple[float, float], ...]:
    """Return means and deviations for a dtype; none for one that is no float."""
    more = _FULL_RANGE.get(dtype, ()) if frame.operator.spec.full_range else ()
    return (*_FLOAT_SCALES.get(dtype, ()), *more)


def _specials(dtype: DType) -> list[float]:
    """Return special values of a dtype: zeros, limits, and for floats NaN, infinities, tiny and huge ones."""
    if not is_float(dtype):
        limits = integer_limits(dtype)
        ends = [0, -1, limits.max, limits.min] if limits.min else [0, limits.max]
        return [*ends * 4, *(n for n in FAR if limits.min <= n < limits.max)]
    found = float_limits(dtype)
    tiny, huge = float(found.tiny), math.sqrt(float(found.max)) / 16
    endless = [math.inf, -math.inf] if has_infinity(dtype) else [float(found.max), float(found.min)]
    return [0.0, -0.0, math.nan, *endless, -1.0, 0.5, 1.5, tiny / 4, math.sqrt(tiny), huge, -huge]
