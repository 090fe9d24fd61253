"""Draw a few inputs of 10^4 to 10^6 elements: each with one size of a case made large, such as the batch or the pixels.

A fault above some size, or at the border of what two threads do, is in no small input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hypothesis import assume
from hypothesis.strategies import DrawFn, SearchStrategy, composite

from opmatrix.data.case_arrays import obeys
from opmatrix.declaration.load import Operator
from opmatrix.search import shapes as output_sizes
from opmatrix.search.draw_attributes import Frame, pick
from opmatrix.search.draw_models import drawn_model, kept, layout_of, named, templates
from opmatrix.search.shapes import Place, places, resized_shapes
from opmatrix.signature.signature import attribute_values, dtype_tuples
from opmatrix.spec import Case, Model, Random, Tensor, shape_of, tensors_of

# Elements of all inputs together. The largest comes last: it may be too slow for the reference.
ELEMENTS = (12_000, 30_000, 60_000, 250_000)
LISTED = 4096  # elements of an input whose values a case lists


@dataclass(frozen=True, kw_only=True)
class Large:
    """One size of a case, which is replaced wherever it occurs."""

    template: tuple[Model, Case]
    size: int

    def model(self, operator: Operator, new: int) -> SearchStrategy[Model]:
        """Return a strategy for models in which the size is `new`."""
        spec, model = operator.spec, self.template[0]

        @composite
        def drawn(draw: DrawFn) -> Model:
            shapes = self.shapes(operator, new)
            assume(shapes is not None)
            assert shapes is not None
            small = all(math.prod(shape) <= LISTED for own in shapes.values() for shape in own)
            listed = small or any(part.type == "string" for part in spec.inputs)
            frame = Frame(operator, self.template, kept=listed, resized={self.size: new})
            types = model.types if listed else pick(draw, dtype_tuples(spec))
            return drawn_model(draw, frame, types, attribute_values(spec, model), shapes)

        return drawn()

    def shapes(self, operator: Operator, new: int) -> Mapping[str, list[tuple[int, ...]]] | None:
        """Return the shapes with a new size, or None where the declaration has none."""
        model, case = self.template
        return resized_shapes(operator.spec, model, case, attribute_values(operator.spec, model), {self.size: new})

    def fitting(self, operator: Operator, elements: int) -> int:
        """Return the largest new size with at most `elements` elements in inputs and in outputs with declared sizes."""
        spec, values = operator.spec, attribute_values(operator.spec, self.template[0])
        low, high = self.size, 2 * elements
        while low < high:
            middle = (low + high + 1) // 2
            found = math.inf
            if (shapes := self.shapes(operator, middle)) is not None:
                drawn = [(part, shape) for part in spec.inputs for shape in shapes[part.name]]
                made = output_sizes.elements(spec, drawn, values)
                found = max(made, sum(math.prod(shape) for _, shape in drawn))
            low, high = (middle, high) if found <= elements else (low, middle - 1)
        return low


def choices(operator: Operator) -> list[Large]:
    """Return a size for each axis that the declaration leaves open, of the smallest case in which no other axis has it:
    first those that belong to the fewest axes."""
    found: dict[frozenset[Place], tuple[int, Large]] = {}
    for model, case in templates(operator):
        sizes = _places(operator, model, case)
        if not sizes or 0 in sizes:
            continue
        total = sum(math.prod(shape_of(t)) for name in case.inputs for t in tensors_of(case, name))
        for size, own in sizes.items():
            large = Large(template=(model, case), size=size)
            if own not in found or total < found[own][0]:
                found[own] = total, large
    covered: set[Place] = set()
    chosen = []
    for own in sorted(found, key=lambda p: (len(p), sorted(p))):
        if not own <= covered:
            chosen.append(found[own][1])
            covered |= own
    return chosen


def _places(operator: Operator, model: Model, case: Case) -> Mapping[int, frozenset[Place]]:
    found: dict[int, set[Place]] = {}
    for size, place in places(operator.spec, model, case):
        found.setdefault(size, set()).add(place)
    return {size: frozenset(own) for size, own in found.items()}


def sizes_of(operator: Operator, large: Large, elements: int) -> Iterator[int]:
    """Yield new sizes to try: an odd one, and one that is a multiple of the old, which may have to divide something.
    Yield none where the declaration allows no larger one."""
    if (fitting := large.fitting(operator, elements)) <= large.size:
        return
    yield fitting - 1 + fitting % 2
    yield large.size * max(1, fitting // large.size - 1 + fitting // large.size % 2)


def sizes(operator: Operator, model: Model) -> list[int]:
    """Return the sizes of a drawn model that its declaration leaves open, from the largest to 2."""
    return sorted({size for size in _places(operator, model, model.cases[0]) if size > 1}, reverse=True)


def with_size(operator: Operator, model: Model, old: int, new: int) -> Model | None:
    """Return a drawn model in which a size is replaced wherever the declaration leaves it open, or None where the
    declaration allows no such model."""
    (case,) = model.cases
    shapes = Large(template=(model, case), size=old).shapes(operator, new)
    if shapes is None:
        return None
    frame = Frame(operator, (model, case), kept=True, resized={old: new})
    tensors = {}
    for part in operator.spec.inputs:
        own = shapes[part.name]
        resized = (_resized(one, shape) for one, shape in zip(tensors_of(case, part.name), own, strict=True))
        tensors[part.name] = kept(frame, part, own) or [*resized]
    made = named(operator.spec, model.types, model.attributes, tensors)
    return made if obeys(operator.spec, made) else None


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
