"""Compute shapes that a declaration allows: from sizes that are chosen, or from those of a case.

Names are chosen first, then the sizes that are computed from them. What the declaration does not tie is chosen for each
input on its own. Outputs of drawn inputs are kept small: an attribute at its extreme may be the size of an axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.search.attribute_candidates import candidates
from opmatrix.signature.signature import attribute_values
from opmatrix.sizes import rules
from opmatrix.sizes.expressions import FURTHER, Size, Term, evaluate, parse, solve, terms
from opmatrix.sizes.known import Known
from opmatrix.sizes.variadic import count, counter
from opmatrix.spec import Attribute, AttributeValue, Case, Dims, FromKernel, Input, Model, OpSpec, shape_of, tensors_of

SMALL = (2, 1, 0, 3, 4, 2, 1, 5, 6, 7, 13, 0)
# Small ones more often than those around powers of two, which vector registers and blocks have.
SIZES = SMALL * 6 + (
    8, 9, 10, 11, 12, 14, 15, 16, 17, 19, 20, 23, 24, 25, 29, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 127, 128, 129,
    140, 255, 256, 257,
)  # fmt: skip
FURTHER_SIZES = (2, 1, 3, 4, 5, 6, 7, 0)  # sizes of the axes of "..."
FURTHER_AXES = 3  # axes of "...", in most draws at most
FURTHER_COUNTS = (1, 2, 3, 0, 1, 2, 3, 1, 2, 3, 4, 5)
ELEMENTS = 4096  # of an input, where its declared numbers do not make it larger
MORE = 4  # times as many as those need, but
LARGE = 2**18  # no more than this where they need less
LARGEST = 2**20  # elements that they may need


def least_elements(dims: Sequence[str | int] | None) -> int:
    """Return how many elements declared sizes have where each name is 1: 64 for (64, "C")."""
    sizes = (evaluate(parse(dim), lambda term: 1) for dim in dims or () if dim != FURTHER)
    return math.prod(max(1, size) for size in sizes if isinstance(size, int))


def most_elements(usual: int, least: int) -> int:
    """Return how many elements a tensor may have that needs `least`."""
    return max(usual, min(MORE * least, max(least, LARGE))) if least <= LARGEST else usual


@rules.once
def most_of_inputs(spec: OpSpec) -> int:
    """Return how many elements a drawn input may have."""
    return most_elements(ELEMENTS, max(least_elements(part.dims) for part in spec.inputs))


class UnusableError(Exception):
    """The chosen sizes give no shape of an input or an output."""


class _LaterError(Exception):
    """A size is computed from an input whose shape is not chosen yet."""


class Template:
    """What the shapes of a case are computed from."""

    def __init__(self, spec: OpSpec, model: Model, case: Case, resized: Mapping[int, int] | None = None) -> None:
        self.resized = resized or {}  # the sizes to replace, by the new ones
        self.shapes = {part.name: [shape_of(tensor) for tensor in tensors_of(case, part.name)] for part in spec.inputs}
        first = {name: own[0] for name, own in self.shapes.items() if own}
        known = Known(spec=spec, shapes=first, attributes=attribute_values(spec, model))
        ranks = {part.rank for part in spec.inputs}
        self.sizes: dict[str, int] = {}  # by their names, without ranks
        for name in rules.definitions(spec):
            size = None if name in ranks else known.size(name)
            if isinstance(size, int):
                self.sizes[name] = self.resized.get(size, size)


def resized_shapes(
    spec: OpSpec,
    model: Model,
    case: Case,
    attributes: Mapping[str, AttributeValue],
    resized: Mapping[int, int] | None = None,
) -> Mapping[str, list[tuple[int, ...]]] | None:
    """Return the shapes that follow from a case and these attributes, with some sizes replaced, or None where the
    declaration has none."""
    template = Template(spec, model, case, resized)
    choice = Choice(pick=None, spec=spec, attributes=dict(attributes), template=template)
    try:
        choice.choose()
    except UnusableError:
        return None
    return choice.shapes


@dataclass(kw_only=True)
class Choice:
    """The sizes and shapes chosen so far. Without `pick` nothing can be chosen: all follows from the template."""

    pick: Callable[[Sequence[Any]], Any] | None
    spec: OpSpec
    attributes: dict[str, AttributeValue]
    template: Template | None = None
    choices: Sequence[int] = SIZES
    sizes: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    drawn_further: list[tuple[int, ...]] = field(default_factory=list)  # the sizes of each "..." so far

    def choose(self) -> None:
        waiting = list(self.spec.inputs)
        if self.template:
            self.sizes.update(self.template.sizes)
            counts = {name: len(found) for name, found in self.template.shapes.items()}
        else:
            counts = {
                part.name: self._pick((1, 0) if part.optional else (1, 2, 3) if part.variadic else (1,))
                for part in waiting
            }
        while waiting:
            later: list[Input] = []
            for part in waiting:
                try:
                    self.shapes[part.name] = [self._shape(part, at) for at in range(counts[part.name])]
                except _LaterError:
                    later.append(part)
            if len(later) == len(waiting):
                raise UnusableError
            waiting = later
        for name, at in rules.checked_axes(self.spec):
            if isinstance(at, str) and at not in self.attributes and self.shapes[name]:
                self._axis(name, at)
        known = self._known()
        try:
            for part in self.spec.inputs:
                fixed = known.sizes_at(part)
                if any(shape[axis] != known.size(dim) for shape in self.shapes[part.name] for axis, dim in fixed):
                    raise UnusableError
            for output in self.spec.outputs:
                known.output(output)
        except ValueError as error:
            raise UnusableError from error

    def _pick(self, values: Sequence[Any]) -> Any:
        if self.pick is None:
            raise UnusableError
        return self.pick(values)

    def _shape(self, part: Input, at: int) -> tuple[int, ...]:
        if part.same_as is not None:
            if part.same_as not in self.shapes:
                raise _LaterError
            return self.shapes[part.same_as][0]
        dims = part.dims if part.dims is not None else (FURTHER,)
        for attribute, size in rules.sizes_at(part):
            self._fix(part, attribute, self._size(size))
        shape: list[int] = []
        for dim in dims:
            shape += self._further(part, len(dims) - 1, at) if dim == FURTHER else [self._size(dim)]
        if self.pick and math.prod(shape) > most_of_inputs(self.spec):
            raise UnusableError
        if part.rank and self.sizes.setdefault(part.rank, len(shape)) != len(shape):
            raise UnusableError
        return tuple(shape)

    def _fix(self, part: Input, attribute: str, size: int) -> None:
        """Choose sizes with which the axis that an attribute names has `size`, where its declared size allows that."""
        dims = part.dims or ()
        if FURTHER in dims or not dims or self.template:
            return
        if attribute not in self.attributes:
            self.attributes[attribute] = self._pick(self._axes(attribute, len(dims)))
        axis = self.attributes[attribute]
        if not isinstance(axis, int) or not -len(dims) <= axis < len(dims):
            raise UnusableError
        dim = str(dims[axis])
        names = [
            t.key
            for t in terms(dim)
            if t.kind == "name" and t.key not in (*self.sizes, *rules.size_attributes(self.spec))
        ]
        if names:
            *others, last = names
            for name in others:
                self._size(name)
            self.sizes[last] = self._size(solve(dim, last, str(size), rules.is_positive(self.spec)) or last)

    def _further(self, part: Input, fixed: int, at: int) -> Sequence[int]:
        """Return the sizes of a "...": those of the template, or in one of three draws those of an input before."""
        if self.template:
            sizes = rules.further(part, self.template.shapes[part.name][at])
            return [self.template.resized.get(size, size) for size in sizes]
        if part.further_as is not None:
            if part.further_as not in self.shapes:
                raise _LaterError
            return rules.further(rules.input_of(self.spec, part.further_as), self.shapes[part.further_as][0])
        if part.rank in self.sizes:
            count = self.sizes[part.rank] - fixed
            if count < 0:
                raise UnusableError
            return tuple(self._pick(FURTHER_SIZES) for _ in range(count))
        if self.drawn_further and self._pick((False, False, True)):
            return self.drawn_further[-1]
        count = self._pick(FURTHER_COUNTS)
        self.drawn_further.append(tuple(self._pick(FURTHER_SIZES) for _ in range(count)))
        return self.drawn_further[-1]

    def _size(self, dim: str | int) -> int:
        size = evaluate(parse(dim), self._term)
        if not isinstance(size, int) or size < 0:
            raise UnusableError
        return size

    def _term(self, term: Term) -> Size:
        if term.kind == "name" and term.key not in rules.size_attributes(self.spec):
            if term.key not in self.sizes:
                if any(part.rank == term.key for part in self.spec.inputs):
                    raise _LaterError
                self.sizes[term.key] = self._pick(self.choices)
            return self.sizes[term.key]
        if term.kind == "size" and isinstance(term.at, str) and term.at not in self.attributes:
            self._axis(term.of, term.at)
        try:
            size = self._known().term(term)
        except ValueError as error:
            raise UnusableError from error
        if size is None:
            raise _LaterError
        return size

    def _axis(self, name: str, attribute: str) -> None:
        """Choose the value of an attribute that names an axis of an input."""
        if name not in self.shapes:
            raise _LaterError
        if not self.shapes[name]:
            raise UnusableError
        shape, sized = self.shapes[name][0], rules.sizes_at(rules.input_of(self.spec, name))
        wanted = [self._size(dim) for at, dim in sized if at == attribute]
        allowed = [axis for axis in self._axes(attribute, len(shape)) if all(shape[axis] == size for size in wanted)]
        if not allowed:
            raise UnusableError
        self.attributes[attribute] = self._pick(allowed)

    def _axes(self, attribute: str, rank: int) -> list[int]:
        """Return the values that an attribute which names an axis may have."""
        declared = next(a for a in self.spec.attributes if a.name == attribute)
        allowed = [axis for axis in range(-rank, rank) if value_mistake(declared, axis) is None]
        return sorted(allowed, key=lambda axis: (axis < 0, abs(axis)))

    def _known(self) -> Known:
        first = {name: found[0] for name, found in self.shapes.items() if found}
        return Known(spec=self.spec, shapes=first, attributes=self.attributes)


OUTPUT_ELEMENTS = 16384  # where declared numbers do not make an output larger
OUTPUT = 256  # that each tensor of a variadic output counts as, at least

Shapes = Iterable[tuple[Input, tuple[int, ...]]]


@rules.once
def most_of_outputs(spec: OpSpec) -> int:
    """Return how many elements an output of drawn inputs may have."""
    dims = [o.shape.dims for o in spec.outputs if isinstance(o.shape, Dims | FromKernel)]
    dims += [part.dims for part in spec.inputs]
    least = max(least_elements(sizes) for sizes in dims)
    return most_elements(OUTPUT_ELEMENTS, least)


def elements(spec: OpSpec, shapes: Shapes, attributes: Mapping[str, AttributeValue]) -> int:
    """Return the number of elements of the largest output, as far as its sizes are declared. An axis of size 0 counts
    as one of 1, because the strides of the others must fit, too."""
    return max(_elements(spec, shapes, attributes), default=0)


def _elements(spec: OpSpec, shapes: Shapes, attributes: Mapping[str, AttributeValue]) -> list[int]:
    """Return the elements of each output, without those whose sizes are invalid: the operator refuses that itself."""
    listed = [*shapes]
    first = {part.name: shape for part, shape in reversed(listed)}
    known, totals = Known(spec=spec, shapes=first, attributes=attributes), []
    for output in spec.outputs:
        try:
            sizes = known.output(output) or []
        except ValueError:
            continue
        totals.append(math.prod(max(1, size) for size in sizes if isinstance(size, int)))
    part = counter(spec)
    if part is not None and totals:
        tensors = {part.name: [shape for other, shape in listed if other is part]}
        totals[-1] = count(spec, tensors, attributes) * max(OUTPUT, totals[-1])
    return totals


def bounded(spec: OpSpec, shapes: Shapes, attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return attributes with which no output with declared sizes has too many elements, if there are any: those that
    are sizes of outputs alone get the largest drawn value that fits."""
    fitted, shapes, limit = dict(attributes), [*shapes], most_of_outputs(spec)
    for attribute in _output_attributes(spec):
        if attribute.name not in fitted or elements(spec, shapes, fitted) <= limit:
            continue
        values = candidates(attribute)
        valid = len(_elements(spec, shapes, fitted))
        of_outputs = [(v, _elements(spec, shapes, {**fitted, attribute.name: v})) for v in values]
        fitting = [v for v, sizes in of_outputs if len(sizes) >= valid and max(sizes, default=0) <= limit]
        fitted[attribute.name] = max(fitting, default=min(values))
    return fitted


@rules.once
def _output_attributes(spec: OpSpec) -> list[Attribute]:
    """Return the ints in sizes of outputs that no size of an input is computed from."""
    inputs = {t.of for part in spec.inputs for _, dim in rules.axes(part) for t in terms(dim)}
    used = {t.of for one in rules.expressions(spec) for t in terms(one)} - inputs
    used |= {part.name for part in [counter(spec)] if part is not None}
    return [a for name, a in rules.size_attributes(spec).items() if name in used and a.kind == "int"]


Place = tuple[str, int]  # an input and an axis, or the name of a size that is no whole axis, and -1


def places(spec: OpSpec, model: Model, case: Case) -> Iterator[tuple[int, Place]]:
    """Yield the sizes of a case that its declaration leaves open, each with the axes that it has."""
    for part in spec.inputs:
        for tensor in tensors_of(case, part.name):
            shape = shape_of(tensor)
            dims = {axis % len(shape): dim for axis, dim in rules.axes(part)}
            for axis, size in enumerate(shape):
                if axis not in dims or rules.is_named(spec, dims[axis]):
                    yield size, (part.name, axis)
    whole = {dim for part in spec.inputs for _, dim in rules.axes(part)}
    for name, size in Template(spec, model, case).sizes.items():
        if name not in whole:
            yield size, (name, -1)


FORMATTED = ((2, 3, 4, 5), (2, 3, 2, 4, 5))  # no two of channels, height and width are equal
"""Shapes in which torch's memory formats channels_last and channels_last_3d have another order of elements."""


def reorders(shape: tuple[int, ...]) -> bool:
    """Return whether the format for a shape has another order of elements than a contiguous tensor."""
    return len(shape) in (4, 5) and shape[1] > 1 and math.prod(shape[2:]) > 1 and shape[0] > 0


def takes_any_shape(spec: OpSpec) -> bool:
    return spec.inputs[0].dims in (None, (FURTHER,)) and not spec.inputs[0].rank
