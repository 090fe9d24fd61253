"""Draw the shapes of inputs, from the declaration: sizes 0, 1, 2, primes, those around powers of two, and what follows
from them.

Draw from the cases: their shapes satisfy what no declaration says, and so do most with one size replaced wherever it
occurs, and the values that they list. Sizes that the declaration computes follow from those that it leaves open.

hypothesis strategies for difficult inputs, from the declaration and the shapes of its cases.

`draw_values` draws values and `draw_attributes` attributes; here they are put together.
hypothesis shrinks towards the first element of each list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import assume, strategies
from hypothesis.strategies import DrawFn, SearchStrategy

from opmatrix.data.case_arrays import described, elements, obeys
from opmatrix.declaration.load import Operator
from opmatrix.search import shapes as output_sizes
from opmatrix.search.draw_attributes import Frame, attributes, before_shapes, comparable, pick, smaller
from opmatrix.search.draw_values import tensor
from opmatrix.search.shapes import SIZES, SMALL, Choice, UnusableError, most_of_inputs, places, template_of
from opmatrix.signature.signature import dtype_of, dtype_tuples, is_parameter
from opmatrix.sizes.rules import once
from opmatrix.spec import (
    AttributeValue,
    Case,
    DType,
    Input,
    MemoryLayout,
    Model,
    Nested,
    OpSpec,
    Tensor,
    Values,
    as_data,
    given,
    shape_of,
)

ATTEMPTS = 30  # to choose sizes for which every size is 0 or more, and every input small
VARIED = 4  # of them, with any sizes: where many multiply, only small ones fit
SMALLER = (8, 4, 2, 1)  # limits of attributes that sizes are computed from, where the sizes of a case do not fit


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """The shapes of each input's tensors, and the attributes that they depend on or that name their axes."""

    inputs: Mapping[str, list[tuple[int, ...]]]
    attributes: Mapping[str, AttributeValue]


def drawn_shapes(draw: DrawFn, frame: Frame, attributes: Mapping[str, AttributeValue]) -> Shapes:
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


Template = tuple[Model, Case]

# hypothesis shrinks towards the first. Where the declaration says all, each kind has shapes of its own.
_KINDS = ("free", "resized", "template", "resized")


def frame_of(draw: DrawFn, operator: Operator) -> Frame:
    """Return the frame of one draw: free, or with a case and sizes that replace those of the case."""
    known = templates(operator)
    if not known or (kind := pick(draw, _KINDS)) == "free":
        return Frame(operator, None)
    template = pick(draw, known)
    found = Frame(
        operator, template, kept=_lists_values(operator, template[1]) and pick(draw, (True, False, True, True))
    )
    if kind == "resized" and (sizes := open_sizes(operator, template)):
        found.resized[pick(draw, sizes)] = pick(draw, SIZES)
    return found


@once
def templates(operator: Operator) -> list[Template]:
    """Return the cases that are small enough to be drawn from."""
    cases = [(m, c) for m in operator.models for c in m.cases if described(c)]
    return [(m, c) for m, c in cases if all(n <= most_of_inputs(operator.spec) for n in elements(c))]


def open_sizes(operator: Operator, template: Template) -> list[int]:
    """Return the sizes of a case that its declaration leaves open. Those that not every case has come six times: any
    other may be a number that the operator requires."""
    everywhere = _in_all_cases(operator)
    own = dict.fromkeys(size for size, _ in places(operator.spec, *template))
    return [size for size in own for _ in range(1 if size in everywhere else 6)]


@once
def _in_all_cases(operator: Operator) -> set[int]:
    found = [{size for size, _ in places(operator.spec, *one)} for one in templates(operator)]
    return set.intersection(*found)


def kept(frame: Frame, part: Input, shapes: Sequence[tuple[int, ...]]) -> list[Tensor] | None:
    """Return the tensors of an input whose values the case lists, of the drawn shapes, or None where they are drawn.

    An axis of another size has elements of the old one, in their order: sorted values remain so, and indices valid.
    """
    if not frame.kept or frame.template is None or is_parameter(part) or (part.values and frame.resized):
        return None
    listed = given(frame.template[1], part.name)
    if not listed or len(listed) != len(shapes) or not all(isinstance(t, Values) for t in listed):
        return None
    made: list[Tensor] = []
    for one, wanted in zip(listed, shapes, strict=True):
        assert isinstance(one, Values)
        shape = shape_of(one)
        if len(shape) != len(wanted) or (0 in shape and shape != wanted) or 0 in wanted[:-1]:  # () has no second axis
            return None
        made.append(Values(values=_resampled(one.values, wanted), layout=layout_of(one, wanted)))
    return made


def layout_of(one: Tensor, shape: tuple[int, ...]) -> MemoryLayout:
    """Return the layout of a tensor, or a contiguous one where another shape has no axis that is expanded."""
    changed = shape != shape_of(one)
    return "contiguous" if changed and one.layout == "expanded" and not any(n > 1 for n in shape) else one.layout


def _lists_values(operator: Operator, case: Case) -> bool:
    parts = (part for part in operator.spec.inputs if not is_parameter(part))
    return any(isinstance(t, Values) for part in parts for t in given(case, part.name))


def _resampled(values: Nested, shape: tuple[int, ...]) -> Nested:
    if not shape:
        return values
    assert isinstance(values, tuple)
    return tuple(_resampled(values[i * len(values) // shape[0]], shape[1:]) for i in range(shape[0]))


def models(operator: Operator) -> SearchStrategy[Model]:
    """Return a strategy for models of one case. Most are drawn from cases, which satisfy undeclared constraints."""

    @strategies.composite
    def model(draw: DrawFn) -> Model:  # without arguments: hypothesis 6 formats them for every example
        return _model(draw, operator)

    return model()


def _model(draw: DrawFn, operator: Operator) -> Model:
    spec = operator.spec
    frame = frame_of(draw, operator)
    types = frame.template[0].types if frame.template and frame.kept else pick(draw, dtype_tuples(spec))
    chosen = drawn_shapes(draw, frame, before_shapes(draw, frame, attributes(draw, frame)))
    drawn = [(part, shape) for part in spec.inputs for shape in chosen.inputs[part.name]]
    values = output_sizes.bounded(spec, drawn, chosen.attributes)
    assume(output_sizes.elements(spec, drawn, values) <= output_sizes.most_of_outputs(spec))
    frame.numbers.extend(comparable(spec, values))
    inputs: dict[str, Tensor | tuple[Tensor, ...] | None] = {}
    for part in spec.inputs:
        dtype = dtype_of(part.type, types)
        own = chosen.inputs[part.name]
        tensors = tuple(kept(frame, part, own) or [tensor(draw, frame, part, dtype, shape) for shape in own])
        inputs[part.name] = tensors if part.variadic else tensors[0] if tensors else None
    model = named(spec, types, values, inputs)
    assume(obeys(spec, model))
    return model


def named(
    spec: OpSpec,
    types: Mapping[str, DType],
    attributes: Mapping[str, AttributeValue],
    inputs: Mapping[str, Tensor | tuple[Tensor, ...] | None],
) -> Model:
    """Return a drawn model of one case. Its name, which follows from its content, seeds the values."""
    content = json.dumps(as_data((types, attributes, inputs)), sort_keys=True)
    name = f"found_{hashlib.sha256(content.encode()).hexdigest()[:8]}"
    return Model(name=name, types=types, attributes=attributes, cases=(Case(name=name, inputs=inputs),))
