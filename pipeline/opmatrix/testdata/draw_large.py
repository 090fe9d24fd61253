"""Draw a few inputs of 10^4 to 10^6 elements: each with one size of a case made large, such as the batch or the pixels.

A fault above some size, or at the border of what two threads do, is in no small input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hypothesis.strategies import DrawFn, SearchStrategy, composite

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import attribute_values, dtype_of, dtype_tuples
from opmatrix.spec import Case, Model, Random, Tensor, given, shape_of
from opmatrix.testdata import output_sizes
from opmatrix.testdata.draw_attributes import comparable
from opmatrix.testdata.draw_frame import Frame, pick
from opmatrix.testdata.draw_templates import kept, layout_of, open_axes, resized_shape, templates
from opmatrix.testdata.draw_values import tensor
from opmatrix.testdata.strategies import named

# Elements of all inputs together. The largest comes last: it may be too slow for the reference.
ELEMENTS = (12_000, 30_000, 60_000, 250_000)
LISTED = 4096  # elements of an input whose values a case lists

Place = tuple[str, int]  # an input and an axis


@dataclass(frozen=True, kw_only=True)
class Large:
    """One size of a case, which is replaced wherever it occurs."""

    template: tuple[Model, Case]
    size: int

    def model(self, operator: Operator, new: int) -> SearchStrategy[Model]:
        """Return a strategy for models in which the size is `new`."""

        @composite
        def drawn(draw: DrawFn) -> Model:
            return _model(draw, operator, self, new)

        return drawn()

    def fitting(self, operator: Operator, elements: int) -> int:
        """Return the largest new size with at most `elements` elements in inputs and in outputs with declared sizes."""
        low, high = self.size, 2 * elements
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _elements(operator, self, middle) <= elements else (low, middle - 1)
        return low


def choices(operator: Operator) -> list[Large]:
    """Return a size for each axis that the declaration leaves open, of the smallest case in which no other axis has it:
    first those that belong to the fewest axes."""
    found: dict[frozenset[Place], tuple[int, Large]] = {}
    for model, case in templates(operator):
        sizes = _places(operator, case)
        if not sizes or 0 in sizes:
            continue
        total = sum(math.prod(shape_of(t)) for name in case.inputs for t in given(case, name))
        for size, places in sizes.items():
            large = Large(template=(model, case), size=size)
            if places not in found or total < found[places][0]:
                found[places] = total, large
    covered: set[Place] = set()
    chosen = []
    for places in sorted(found, key=lambda p: (len(p), sorted(p))):
        if not places <= covered:
            chosen.append(found[places][1])
            covered |= places
    return chosen


def _places(operator: Operator, case: Case) -> Mapping[int, frozenset[Place]]:
    found: dict[int, set[Place]] = {}
    for part in operator.spec.inputs:
        for one in given(case, part.name):
            shape = shape_of(one)
            for axis in open_axes(part, len(shape)):
                found.setdefault(shape[axis], set()).add((part.name, axis))
    return {size: frozenset(places) for size, places in found.items()}


def _shapes(operator: Operator, large: Large, new: int) -> tuple[Frame, list[tuple[str, tuple[int, ...]]]]:
    frame = Frame(operator, large.template, kept=True, resized={large.size: new})
    shapes = [
        (part.name, resized_shape(frame, part, shape_of(one)))
        for part in operator.spec.inputs
        for one in given(large.template[1], part.name)
    ]
    return frame, shapes


def _elements(operator: Operator, large: Large, new: int) -> int:
    spec = operator.spec
    _, shapes = _shapes(operator, large, new)
    parts = {part.name: part for part in spec.inputs}
    drawn = [(parts[name], shape) for name, shape in shapes]
    made = output_sizes.elements(spec, drawn, attribute_values(spec, large.template[0]))
    return max(made, sum(math.prod(shape) for _, shape in shapes))


def _model(draw: DrawFn, operator: Operator, large: Large, new: int) -> Model:
    spec, model = operator.spec, large.template[0]
    frame, shapes = _shapes(operator, large, new)
    listed = all(math.prod(shape) <= LISTED for name, shape in shapes) or any(
        part.type == "string" for part in spec.inputs
    )
    frame = replace(frame, kept=listed)
    types = model.types if listed else pick(draw, dtype_tuples(spec))
    values = attribute_values(spec, model)
    frame.numbers.extend(comparable(spec, values))
    inputs: dict[str, Tensor | tuple[Tensor, ...] | None] = {}
    for part in spec.inputs:
        own = [shape for name, shape in shapes if name == part.name]
        tensors = tuple(
            kept(frame, part) or [tensor(draw, frame, part, dtype_of(part.type, types), shape) for shape in own]
        )
        inputs[part.name] = tensors if part.variadic else tensors[0] if tensors else None
    return named(spec, types, values, inputs)


def sizes_of(operator: Operator, large: Large, elements: int) -> Iterator[int]:
    """Yield new sizes to try: an odd one, and one that is a multiple of the old, which may have to divide something."""
    fitting = large.fitting(operator, elements)
    yield fitting - 1 + fitting % 2
    yield large.size * max(1, fitting // large.size - 1 + fitting // large.size % 2)


def sizes(operator: Operator, model: Model) -> list[int]:
    """Return the sizes of a drawn model that its declaration leaves open, from the largest to 2."""
    return sorted({size for size in _places(operator, model.cases[0]) if size > 1}, reverse=True)


def with_size(operator: Operator, model: Model, old: int, new: int) -> Model:
    """Return a drawn model in which a size is replaced wherever the declaration leaves it open."""
    (case,) = model.cases
    frame = Frame(operator, (model, case), kept=True, resized={old: new})
    inputs: dict[str, Tensor | tuple[Tensor, ...] | None] = {}
    for part in operator.spec.inputs:
        listed = kept(frame, part)
        own = given(case, part.name)
        tensors = tuple(listed or [_resized(one, resized_shape(frame, part, shape_of(one))) for one in own])
        inputs[part.name] = tensors if part.variadic else tensors[0] if tensors else None
    return named(operator.spec, model.types, model.attributes, inputs)


def _resized(one: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(one, Random) or shape == one.shape:
        return one
    count = math.prod(shape)
    return replace(
        one,
        shape=shape,
        layout=layout_of(one, shape),
        specials={at: value for at, value in one.specials.items() if at < count},
    )
