"""Draw the values of inputs: every memory layout, NaN, infinities, denormals, tiny and huge numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import assume, strategies
from hypothesis.strategies import DrawFn

from opmatrix.declaration.torch_signature import is_parameter
from opmatrix.spec import DType, Input, MemoryLayout, Random, Tensor, Values, given
from opmatrix.testdata.draw_frame import Frame, pick

LAYOUTS: tuple[MemoryLayout, ...] = ("contiguous", "transposed", "sliced", "expanded", "flipped")
SPECIALS = 3  # per tensor, at most


def tensor(draw: DrawFn, frame: Frame, part: Input, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """Return a description of one tensor of an input."""
    if is_parameter(part):
        return _parameter(draw, frame, part, dtype, shape)
    if dtype == "string":
        words = ("a", "", "b", "ä€")
        return Values(values=_nested([pick(draw, words) for _ in range(math.prod(shape))], shape))
    if dtype == "bool":
        layouts = [layout for layout in LAYOUTS if layout != "expanded"]
        return Random(shape=shape, layout=pick(draw, layouts))
    scales = _FLOAT_SCALES.get(dtype, ((20.0, 3.0),) if dtype.startswith("uint") else ((0.0, 3.0), (0.0, 20.0)))
    mean, deviation = pick(draw, scales)
    count = draw(strategies.integers(0, min(SPECIALS, math.prod(shape))))
    specials = {draw(strategies.integers(0, math.prod(shape) - 1)): pick(draw, _specials(dtype)) for _ in range(count)}
    layout = pick(draw, LAYOUTS)
    if layout == "expanded":  # all elements are equal
        assume(any(size > 1 for size in shape))
        return Random(shape=shape, mean=mean, deviation=0.0, layout=layout)
    return Random(shape=shape, mean=mean, deviation=deviation, specials=specials, layout=layout)


def _parameter(draw: DrawFn, frame: Frame, part: Input, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of one element: one of the cases or a size, or in one of ten draws a special value."""
    cases = [frame.template[1]] if frame.template else [c for m in frame.operator.models for c in m.cases]
    seen = [t for c in cases for t in given(c, part.name) if isinstance(t, Values)]
    number = dtype not in ("bool", "string")
    real = dtype.startswith(("float", "bfloat"))
    likely = [Values(values=_nested([float(n) if real else n], shape)) for n in frame.sizes.values() if number]
    unlikely = [Values(values=_nested([n], shape)) for n in _specials(dtype)] if number else []
    usual: list[Tensor] = [*dict.fromkeys((*seen, *likely))] or [Random(shape=shape)]
    chosen: Tensor = pick(draw, unlikely if unlikely and draw(strategies.integers(0, 9)) == 9 else usual)
    return chosen


def _nested(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    step = math.prod(shape[1:])
    return tuple(_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))


# Mean and deviation. A product of two of the largest, or of the smallest, still fits the dtype: a kernel that computes
# the formula in its own precision is correct, and need not avoid overflow.
_FLOAT_SCALES: Mapping[DType, tuple[tuple[float, float], ...]] = {
    "float32": ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-15), (0.0, 1e15), (-1e6, 100.0)),
    "float64": ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-100), (0.0, 1e100), (-1e6, 100.0)),
    "float16": ((0.0, 1.0), (10.0, 1.0), (0.0, 0.01), (0.0, 30.0)),
    "bfloat16": ((0.0, 1.0), (100.0, 1.0), (0.0, 1e-15), (0.0, 1e15)),
}


def _specials(dtype: DType) -> list[float]:
    """Return special values of a dtype: zeros, limits, and for floats NaN, infinities, tiny and huge ones."""
    if not dtype.startswith(("float", "bfloat")):
        limits = np.iinfo(dtype)
        return [0, -1, limits.max, limits.min] if limits.min else [0, limits.max]
    found: Any = np.finfo("float32" if dtype == "bfloat16" else dtype)
    tiny, huge = float(found.tiny), math.sqrt(float(found.max)) / 16
    return [0.0, -0.0, math.nan, math.inf, -math.inf, -1.0, 0.5, 1.5, tiny / 4, math.sqrt(tiny), huge, -huge]
