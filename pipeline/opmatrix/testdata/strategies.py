"""hypothesis strategies for difficult inputs, from the declaration and the shapes of its cases.

draw_shapes draws shapes, draw_values values, draw_attributes attributes; here they are put together.
hypothesis shrinks towards the first element of each list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from hypothesis import assume, strategies
from hypothesis.strategies import DrawFn, SearchStrategy

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import dtype_of, dtype_tuples
from opmatrix.spec import AttributeValue, Case, DType, Model, OpSpec, Tensor, as_data
from opmatrix.testdata import output_sizes
from opmatrix.testdata.case_arrays import obeys
from opmatrix.testdata.draw_attributes import attributes, before_shapes, comparable
from opmatrix.testdata.draw_frame import pick
from opmatrix.testdata.draw_shapes import shapes
from opmatrix.testdata.draw_templates import frame_of, kept
from opmatrix.testdata.draw_values import tensor


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
    chosen = shapes(draw, frame, before_shapes(draw, frame, attributes(draw, frame)))
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
