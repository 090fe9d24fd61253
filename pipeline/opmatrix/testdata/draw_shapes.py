"""Draw the shapes of inputs, from the declaration: sizes 0, 1, 2 and primes, and what follows from them.

Names are chosen first, then the sizes that are computed from them. What the declaration does not tie is drawn for each
input on its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hypothesis import assume, strategies
from hypothesis.strategies import DrawFn

from opmatrix.declaration.declared_sizes import checked_axes, expressions
from opmatrix.declaration.known_sizes import Known
from opmatrix.declaration.size_expressions import FURTHER, Size, Term, evaluate, parse, terms
from opmatrix.declaration.size_rules import once, size_attributes
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.spec import AttributeValue, Input, OpSpec, given, shape_of
from opmatrix.testdata.draw_frame import Frame, pick

SIZES = (2, 1, 3, 4, 5, 6, 7, 13, 31, 0)
FURTHER_SIZES = (2, 1, 3, 4, 5, 6, 7, 0)  # sizes of the axes of "..."
ELEMENTS = 4096  # of an input
OUTPUT_ELEMENTS = 1 << 18
ATTEMPTS = 30  # to choose sizes for which every size is 0 or more, and every tensor small


class _UnusableError(Exception):
    """The chosen sizes give no shape of an input or an output."""


class _LaterError(Exception):
    """A size is computed from an input whose shape is not chosen yet."""


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """The shapes of each input's tensors, and the attributes that they depend on or that name their axes."""

    inputs: Mapping[str, list[tuple[int, ...]]]
    attributes: Mapping[str, AttributeValue]


@once
def named_attributes(spec: OpSpec) -> set[str]:
    """Return the attributes in size expressions, whose values must be chosen before the shapes."""
    known = size_attributes(spec)
    return {term.of for one in expressions(spec) for term in terms(one) if term.of in known}


def shapes(draw: DrawFn, frame: Frame, attributes: Mapping[str, AttributeValue]) -> Shapes:
    """Return shapes that the declaration allows with the values of the `named_attributes`."""
    if frame.template:
        case = frame.template[1]
        return Shapes(
            inputs={i.name: [shape_of(t) for t in given(case, i.name)] for i in frame.operator.spec.inputs},
            attributes=attributes,
        )
    for _ in range(ATTEMPTS):
        choice = _Choice(draw=draw, spec=frame.operator.spec, attributes=dict(attributes))
        try:
            choice.choose()
        except _UnusableError:
            continue
        frame.sizes.update(choice.sizes)
        return Shapes(inputs=choice.shapes, attributes=choice.attributes)
    assume(False)
    raise AssertionError("assume raises")


@dataclass(kw_only=True)
class _Choice:
    """The sizes and shapes chosen so far."""

    draw: DrawFn
    spec: OpSpec
    attributes: dict[str, AttributeValue]
    sizes: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    further: list[tuple[int, ...]] = field(default_factory=list)  # the sizes of each "..." so far

    def choose(self) -> None:
        waiting = list(self.spec.inputs)
        while waiting:
            later: list[Input] = []
            for part in waiting:
                try:
                    count = pick(self.draw, (1, 0) if part.optional else (1, 2, 3) if part.variadic else (1,))
                    self.shapes[part.name] = [self._shape(part) for _ in range(count)]
                except _LaterError:
                    later.append(part)
            if len(later) == len(waiting):
                raise _UnusableError
            waiting = later
        for name, at in checked_axes(self.spec):
            if isinstance(at, str) and at not in self.attributes:
                self._axis(name, at)
        self._check_outputs()

    def _shape(self, part: Input) -> tuple[int, ...]:
        if part.same_as is not None:
            if part.same_as not in self.shapes:
                raise _LaterError
            return self.shapes[part.same_as][0]
        dims = part.dims if part.dims is not None else (FURTHER,)
        shape: list[int] = []
        for dim in dims:
            shape += self._further(part, len(dims) - 1) if dim == FURTHER else [self._size(dim)]
        if math.prod(shape) > ELEMENTS or (part.rank and self.sizes.setdefault(part.rank, len(shape)) != len(shape)):
            raise _UnusableError
        return tuple(shape)

    def _further(self, part: Input, fixed: int) -> tuple[int, ...]:
        """Return the sizes of a "...", in one of three draws those of an input before."""
        if part.rank in self.sizes:
            count = self.sizes[part.rank] - fixed
            if count < 0:
                raise _UnusableError
            return tuple(pick(self.draw, FURTHER_SIZES) for _ in range(count))
        if self.further and pick(self.draw, (False, False, True)):
            return self.further[-1]
        self.further.append(tuple(self.draw(strategies.lists(strategies.sampled_from(FURTHER_SIZES), max_size=3))))
        return self.further[-1]

    def _size(self, dim: str | int) -> int:
        found = evaluate(parse(dim), self._term)
        if not isinstance(found, int) or found < 0:
            raise _UnusableError
        return found

    def _term(self, term: Term) -> Size:
        if term.kind == "name" and term.key not in size_attributes(self.spec):
            if term.key not in self.sizes:
                if any(part.rank == term.key for part in self.spec.inputs):
                    raise _LaterError
                self.sizes[term.key] = pick(self.draw, SIZES)
            return self.sizes[term.key]
        if term.kind == "size" and isinstance(term.at, str) and term.at not in self.attributes:
            self._axis(term.of, term.at)
        try:
            found = self._known().term(term)
        except ValueError as error:
            raise _UnusableError from error
        if found is None:
            raise _LaterError
        return found

    def _axis(self, name: str, attribute: str) -> None:
        """Choose the value of an attribute that names an axis of an input."""
        if name not in self.shapes:
            raise _LaterError
        rank = len(self.shapes[name][0])
        declared = next(a for a in self.spec.attributes if a.name == attribute)
        allowed = [axis for axis in range(-rank, rank) if value_mistake(declared, axis) is None]
        if not allowed:
            raise _UnusableError
        self.attributes[attribute] = pick(self.draw, sorted(allowed, key=lambda axis: (axis < 0, abs(axis))))

    def _known(self) -> Known:
        first = {name: found[0] for name, found in self.shapes.items() if found}
        return Known(spec=self.spec, shapes=first, attributes=self.attributes)

    def _check_outputs(self) -> None:
        for sizes in self._outputs():
            if math.prod(size for size in sizes if isinstance(size, int)) > OUTPUT_ELEMENTS:
                raise _UnusableError

    def _outputs(self) -> Iterator[list[Size]]:
        known = self._known()
        for output in self.spec.outputs:
            try:
                yield known.output(output) or []
            except ValueError as error:
                raise _UnusableError from error
