"""Draw the shapes of inputs, from the declaration: sizes 0, 1, 2, primes, those around powers of two, and what follows
from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import assume
from hypothesis.strategies import DrawFn

from opmatrix.spec import AttributeValue
from opmatrix.testdata.declared_shapes import SIZES, SMALL, Choice, UnusableError, template_of
from opmatrix.testdata.draw_attributes import smaller
from opmatrix.testdata.draw_frame import Frame, pick

ATTEMPTS = 30  # to choose sizes for which every size is 0 or more, and every input small
VARIED = 4  # of them, with any sizes: where many multiply, only small ones fit
SMALLER = (8, 4, 2, 1)  # limits of attributes that sizes are computed from, where the sizes of a case do not fit


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """The shapes of each input's tensors, and the attributes that they depend on or that name their axes."""

    inputs: Mapping[str, list[tuple[int, ...]]]
    attributes: Mapping[str, AttributeValue]


def shapes(draw: DrawFn, frame: Frame, attributes: Mapping[str, AttributeValue]) -> Shapes:
    """Return shapes that the declaration allows with these attributes; it adds those that name an axis."""
    spec, template = frame.operator.spec, None
    if frame.template:
        template = template_of(spec, *frame.template, frame.resized)
    for attempt in range(1 + len(SMALLER) if template else ATTEMPTS):
        if template and attempt:
            attributes = smaller(draw, frame, attributes, SMALLER[attempt - 1])
        choice = Choice(
            pick=lambda values: pick(draw, values),
            spec=spec,
            attributes=dict(attributes),
            template=template,
            choices=SIZES if attempt < VARIED else SMALL,
        )
        try:
            choice.choose()
        except UnusableError:
            continue
        frame.sizes.update(choice.sizes)
        return Shapes(inputs=choice.shapes, attributes=choice.attributes)
    assume(False)
    raise AssertionError("assume raises")
