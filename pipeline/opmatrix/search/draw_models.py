"""Draw models of one case each with hypothesis, the same in every run, and shrink one that fails.

Most take the shapes of a case, which satisfy what no declaration says, and so do most with one size replaced wherever
it occurs. hypothesis shrinks towards the first element of each list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random as Generator
from typing import Any

import hypothesis
from hypothesis import assume, strategies
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider
from hypothesis.strategies import DrawFn, SearchStrategy

from opmatrix.basics.errors import DataError
from opmatrix.data.case_arrays import described, elements, obeys
from opmatrix.declaration.load import Operator
from opmatrix.search import shapes as allowed
from opmatrix.search.draw_attributes import Frame, attributes, before_shapes, comparable, pick, smaller
from opmatrix.search.draw_values import tensor
from opmatrix.signature.signature import attribute_values, dtype_of, dtype_tuples, is_parameter
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
    Random,
    Tensor,
    Values,
    as_data,
    shape_of,
    tensors_of,
)

EXAMPLES = 200
EXAMPLES_EACH = 72  # of each choice of dtypes: with fewer, special values are missing in some
ATTEMPTS = 30  # to choose sizes for which every size is 0 or more, and every input small
VARIED = 4  # of them, with any sizes: where many multiply, only small ones fit
SMALLER = (8, 4, 2, 1)  # limits of attributes that sizes are computed from, where the sizes of a case do not fit


def _chosen(draw: DrawFn, frame: Frame, attributes: Mapping[str, AttributeValue]) -> allowed.Choice:
    """Return shapes that the declaration allows with these attributes, and these with those that name an axis."""
    spec, template = frame.operator.spec, None
    if frame.template:
        template = allowed.Template(spec, *frame.template, frame.resized)
    for attempt in range(1 + len(SMALLER) if template else ATTEMPTS):
        if template and attempt:
            attributes = smaller(draw, frame, attributes, SMALLER[attempt - 1])
        choice = allowed.Choice(
            pick=lambda values: pick(draw, values),
            spec=spec,
            attributes=dict(attributes),
            template=template,
            choices=allowed.SIZES if attempt < VARIED else allowed.SMALL,
        )
        try:
            choice.choose()
        except allowed.UnusableError:
            continue
        frame.sizes.update(choice.sizes)
        return choice
    assume(False)
    raise AssertionError("assume raises")


# hypothesis shrinks towards the first. Where the declaration says all, each kind has shapes of its own.
_KINDS = ("free", "resized", "template", "resized")


def _frame(draw: DrawFn, operator: Operator) -> Frame:
    """Return the frame of one draw: free, or with a case and sizes that replace those of the case."""
    known = templates(operator)
    if not known or (kind := pick(draw, _KINDS)) == "free":
        return Frame(operator, None)
    template = pick(draw, known)
    parts = (part for part in operator.spec.inputs if not is_parameter(part))
    lists_values = any(isinstance(t, Values) for part in parts for t in tensors_of(template[1], part.name))
    frame = Frame(operator, template, kept=lists_values and pick(draw, (True, False, True, True)))
    if kind == "resized" and (sizes := open_sizes(operator, template)):
        frame.resized[pick(draw, sizes)] = pick(draw, allowed.SIZES)
    return frame


@once
def templates(operator: Operator) -> list[tuple[Model, Case]]:
    """Return the cases that are small enough to be drawn from."""
    cases = [(m, c) for m in operator.models for c in m.cases if described(c)]
    return [(m, c) for m, c in cases if all(n <= allowed.most_of_inputs(operator.spec) for n in elements(c))]


def open_sizes(operator: Operator, template: tuple[Model, Case]) -> list[int]:
    """Return the sizes of a case that its declaration leaves open. Those that not every case has come six times: any
    other may be a number that the operator requires."""
    everywhere = _in_all_cases(operator)
    own = dict.fromkeys(size for size, _ in allowed.places(operator.spec, *template))
    return [size for size in own for _ in range(1 if size in everywhere else 6)]


@once
def _in_all_cases(operator: Operator) -> set[int]:
    found = [{size for size, _ in allowed.places(operator.spec, *one)} for one in templates(operator)]
    return set.intersection(*found)


def kept(frame: Frame, part: Input, shapes: Sequence[tuple[int, ...]]) -> list[Tensor] | None:
    """Return the tensors of an input whose values the case lists, of the drawn shapes, or None where they are drawn.

    An axis of another size has elements of the old one, in their order: sorted values remain so, and indices valid.
    """
    if not frame.kept or frame.template is None or is_parameter(part) or (part.values and frame.resized):
        return None
    listed = tensors_of(frame.template[1], part.name)
    if not listed or len(listed) != len(shapes) or not all(isinstance(t, Values) for t in listed):
        return None
    tensors: list[Tensor] = []
    for one, wanted in zip(listed, shapes, strict=True):
        assert isinstance(one, Values)
        shape = shape_of(one)
        if len(shape) != len(wanted) or (0 in shape and shape != wanted) or 0 in wanted[:-1]:  # () has no second axis
            return None
        tensors.append(Values(values=_resampled(one.values, wanted), layout=layout_of(one, wanted)))
    return tensors


def layout_of(one: Tensor, shape: tuple[int, ...]) -> MemoryLayout:
    """Return the layout of a tensor, or a contiguous one where another shape has no axis that is expanded."""
    changed = shape != shape_of(one)
    return "contiguous" if changed and one.layout == "expanded" and not any(n > 1 for n in shape) else one.layout


def _resampled(values: Nested, shape: tuple[int, ...]) -> Nested:
    if not shape:
        return values
    assert isinstance(values, tuple)
    return tuple(_resampled(values[i * len(values) // shape[0]], shape[1:]) for i in range(shape[0]))


def models(operator: Operator) -> SearchStrategy[Model]:
    """Return a strategy for models of one case. Most are drawn from cases, which satisfy undeclared constraints."""
    spec = operator.spec

    @strategies.composite
    def model(draw: DrawFn) -> Model:  # without arguments: hypothesis 6 formats them for every example
        frame = _frame(draw, operator)
        types = frame.template[0].types if frame.template and frame.kept else pick(draw, dtype_tuples(spec))
        chosen = _chosen(draw, frame, before_shapes(draw, frame, attributes(draw, frame)))
        drawn = [(part, shape) for part in spec.inputs for shape in chosen.shapes[part.name]]
        values = allowed.bounded(spec, drawn, chosen.attributes)
        assume(allowed.elements(spec, drawn, values) <= allowed.most_of_outputs(spec))
        return drawn_model(draw, frame, types, values, chosen.shapes)

    return model()


def drawn_model(
    draw: DrawFn,
    frame: Frame,
    types: Mapping[str, DType],
    values: Mapping[str, AttributeValue],
    shapes: Mapping[str, list[tuple[int, ...]]],
) -> Model:
    """Return a model with these dtypes, attributes and shapes, and drawn values."""
    spec = frame.operator.spec
    frame.numbers.extend(comparable(spec, values))
    tensors = {}
    for part in spec.inputs:
        own, dtype = shapes[part.name], dtype_of(part.type, types)
        tensors[part.name] = kept(frame, part, own) or [tensor(draw, frame, part, dtype, shape) for shape in own]
    model = named(spec, types, values, tensors)
    assume(obeys(spec, model))
    return model


def in_other_formats(operator: Operator) -> Iterator[Model]:
    """Yield models with four and with five axes for each choice of dtypes, of an operator that takes any shape: most
    drawn inputs have fewer axes. Others are drawn with the axes that they declare."""
    spec = operator.spec
    for types in dtype_tuples(spec) if allowed.takes_any_shape(spec) else ():
        for shape in allowed.FORMATTED:
            inputs = {part.name: [Random(shape=shape)] for part in spec.inputs}
            yield named(spec, types, attribute_values(spec, operator.models[0]), inputs)


def named(
    spec: OpSpec,
    types: Mapping[str, DType],
    attributes: Mapping[str, AttributeValue],
    tensors: Mapping[str, Sequence[Tensor]],
) -> Model:
    """Return a drawn model of one case. Its name, which follows from its content, seeds the values."""
    inputs: dict[str, Tensor | tuple[Tensor, ...] | None] = {}
    for part in spec.inputs:
        own = tensors[part.name]
        inputs[part.name] = tuple(own) if part.variadic else own[0] if own else None
    content = json.dumps(as_data((types, attributes, inputs)), sort_keys=True)
    name = f"found_{hashlib.sha256(content.encode()).hexdigest()[:8]}"
    return Model(name=name, types=types, attributes=attributes, cases=(Case(name=name, inputs=inputs),))


def enough(spec: OpSpec) -> int:
    """Return how many inputs to draw, if they are small."""
    return max(EXAMPLES, EXAMPLES_EACH * len(dtype_tuples(spec)))


def collect(operator: Operator, *, examples: int, home: Path, seed: str = "") -> list[Model]:
    """Return at most `examples` models with one case each, the same in every run; hypothesis may write to `home`.

    Another `seed` gives others. A model may violate a constraint that is not declared: then reference and kernel
    must both raise. Raises DataError where the declaration allows none.
    """
    drawn: list[Model] = []
    search(models(operator), drawn.append, seed=f"{operator.name}{seed}", examples=examples, home=home)
    if not drawn:
        raise DataError(
            f"{operator.name}: the declaration allows no input that the search can draw, with at most "
            f"{allowed.most_of_inputs(operator.spec)} elements in each. Correct sizes (dims) and rules (values) that "
            "contradict each other; where numbers in dims need more elements, declare names in their place"
        )
    return [*{model.name: model for model in drawn}.values()]


def find(operator: Operator, wanted: Callable[[Model], bool], *, examples: int, home: Path) -> Model | None:
    """Return the smallest model for which `wanted` is true, found and shrunk from `examples` draws, or None."""
    return search(models(operator), wanted, seed=operator.name, examples=examples, home=home)


def one(strategy: SearchStrategy[Model], *, seed: str, home: Path) -> Model | None:
    """Return one model that a strategy draws, mostly of the simplest values, or None where all are refused."""
    drawn: list[Model] = []
    search(strategy, drawn.append, seed=seed, examples=1, home=home, simple=0.8)
    return drawn[-1] if drawn else None


def search(
    strategy: SearchStrategy[Model],
    wanted: Callable[[Model], object],
    *,
    seed: str,
    examples: int,
    home: Path,
    simple: float = 0.0,
) -> Model | None:
    """Return the smallest model for which `wanted` is true, or None: `list.append` gets all and wants none."""
    set_hypothesis_home_dir(home)
    _Independent.random, _Independent.simple = Generator(seed), simple
    AVAILABLE_PROVIDERS["independent"] = _Independent
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        backend="independent",
    )
    try:
        return hypothesis.find(strategy, lambda model: bool(wanted(model)), settings=settings, random=Generator(seed))
    except (hypothesis.errors.NoSuchExample, hypothesis.errors.Unsatisfiable):  # none wanted, or none allowed
        return None


class _Independent(PrimitiveProvider):
    """Draws each example independently, so that a draw depends on the operator's name alone.

    hypothesis's own provider mutates earlier examples, which suits searches of thousands of examples, and draws
    constants from the source of all imported modules.
    """

    random: Generator
    simple: float  # how often an integer is the smallest

    def draw_boolean(self, p: float = 0.5) -> bool:
        return self.random.random() < p

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **constraints: Any) -> int:
        assert min_value is not None and max_value is not None, "the strategies here draw from finite sets alone"
        if self.simple and self.random.random() < self.simple:
            return min_value
        return self.random.randint(min_value, max_value)

    def _unused(self, *arguments: Any, **constraints: Any) -> Any:
        raise NotImplementedError

    draw_float = draw_string = draw_bytes = _unused
