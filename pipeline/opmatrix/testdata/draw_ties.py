"""Draw tensors with ties: few different values, equal to values of attributes and of other inputs, at the same places.

Sorts, maxima, thresholds and comparisons of two inputs have their faults there: ``>=`` in place of ``>``.
"""

from __future__ import annotations

import math
from random import Random as Generator
from typing import Any

from hypothesis import strategies
from hypothesis.strategies import DrawFn

from opmatrix.spec import DType, MemoryLayout, Random, Tensor, Values
from opmatrix.testdata.draw_frame import Frame, nested, pick
from opmatrix.testdata.dtypes import float_limits, has_infinity, integer_limits, is_float

LAYOUTS: tuple[MemoryLayout, ...] = ("contiguous", "transposed", "sliced", "flipped")
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
    layout = pick(draw, LAYOUTS)
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
