"""Draw the shapes of inputs, from the declaration: sizes 0, 1, 2, primes, and those around powers of two."""

from __future__ import annotations

import math

from hypothesis import assume, strategies
from hypothesis.strategies import DrawFn

from opmatrix.spec import Input, given, shape_of
from opmatrix.testdata.draw_frame import Frame, pick

# Small ones three times as often as those around powers of two, which vector registers and blocks have.
SIZES = (2, 1, 0, 3, 4, 5, 6, 7, 13, 0) * 3 + (
    8, 9, 10, 11, 12, 14, 15, 16, 17, 19, 20, 23, 24, 25, 29, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 127, 128, 129,
    140, 255, 256, 257,
)  # fmt: skip
FURTHER = (2, 1, 3, 4, 5, 6, 7, 0)  # sizes of the axes of "..."
ELEMENTS = 4096


def shapes(draw: DrawFn, frame: Frame, part: Input) -> list[tuple[int, ...]]:
    """Return the shape of each tensor of an input."""
    if frame.template:
        return [shape_of(t) for t in given(frame.template[1], part.name)]
    count = pick(draw, (1, 0) if part.optional else (1, 2, 3) if part.variadic else (1,))
    return [_shape(draw, frame, part)] * count


def _shape(draw: DrawFn, frame: Frame, part: Input) -> tuple[int, ...]:
    if part.same_as is not None:  # its sizes are chosen already
        return _shape(draw, frame, next(i for i in frame.operator.spec.inputs if i.name == part.same_as))
    shape: list[int] = []
    for dim in part.dims if part.dims is not None else ("...",):
        if isinstance(dim, int):
            shape.append(dim)
        elif dim == "...":
            if not frame.further:
                frame.further.append(tuple(draw(strategies.lists(strategies.sampled_from(FURTHER), max_size=3))))
            shape += frame.further[0]
        else:
            if dim not in frame.sizes:
                frame.sizes[dim] = pick(draw, SIZES)
            shape.append(frame.sizes[dim])
    assume(math.prod(shape) <= ELEMENTS)
    return tuple(shape)
