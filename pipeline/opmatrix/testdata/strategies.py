"""hypothesis strategies for difficult inputs, from the declaration and the shapes of its cases.

draw_shapes draws shapes, draw_values values; here attributes are drawn, at their limits too, and absent inputs.
hypothesis shrinks towards the first element of each list.
"""

from __future__ import annotations

import hashlib
import json

from hypothesis import assume, strategies
from hypothesis.strategies import DrawFn, SearchStrategy

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import attribute_values, dtype_of, dtype_tuples
from opmatrix.spec import Attribute, AttributeValue, Case, Model, Tensor, as_data
from opmatrix.testdata.case_arrays import elements
from opmatrix.testdata.draw_frame import Frame, pick
from opmatrix.testdata.draw_shapes import ELEMENTS, named_attributes, shapes
from opmatrix.testdata.draw_values import obeys, tensor


def models(operator: Operator) -> SearchStrategy[Model]:
    """Return a strategy for models of one case; half have shapes of a case, which satisfy undeclared constraints."""

    @strategies.composite
    def model(draw: DrawFn) -> Model:  # without arguments: hypothesis 6 formats them for every example
        return _model(draw, operator)

    return model()


def _model(draw: DrawFn, operator: Operator) -> Model:
    spec = operator.spec
    types = pick(draw, dtype_tuples(spec))
    templates = [(m, c) for m in operator.models for c in m.cases if all(n <= ELEMENTS for n in elements(c))]
    templated = bool(templates) and pick(draw, (False, True))
    frame = Frame(operator, pick(draw, templates) if templated else None)
    first = [a for a in spec.attributes if a.name in named_attributes(spec)]  # sizes are computed from them
    chosen = shapes(draw, frame, {a.name: pick(draw, values) for a in first if (values := _attribute(frame, a))})
    inputs: dict[str, Tensor | tuple[Tensor, ...] | None] = {}
    for part in spec.inputs:
        dtype = dtype_of(part.type, types)
        tensors = tuple(tensor(draw, frame, part, dtype, shape) for shape in chosen.inputs[part.name])
        inputs[part.name] = tensors if part.variadic else tensors[0] if tensors else None
    attributes = {
        a.name: chosen.attributes[a.name] if a.name in chosen.attributes else pick(draw, values)
        for a in spec.attributes
        if (values := _attribute(frame, a)) or a.name in chosen.attributes
    }
    content = json.dumps(as_data((types, attributes, inputs)), sort_keys=True)
    name = f"found_{hashlib.sha256(content.encode()).hexdigest()[:8]}"  # the name seeds the values
    model = Model(name=name, types=types, attributes=attributes, cases=(Case(name=name, inputs=inputs),))
    assume(obeys(spec, model))
    return model


def _attribute(frame: Frame, attribute: Attribute) -> list[AttributeValue]:
    """Return valid values of an attribute: that of the template, or its default, those of all models, its limits."""
    if frame.template:
        value = attribute_values(frame.operator.spec, frame.template[0]).get(attribute.name)
        return [] if value is None else [value]
    values = [attribute.default, *(m.attributes.get(attribute.name) for m in frame.operator.models)]
    if not attribute.kind.endswith("s"):  # a list's limits are those of its elements
        values += [*(attribute.allowed or ()), attribute.minimum, attribute.maximum]
    if attribute.kind == "int":
        values = [int(v) if isinstance(v, float) else v for v in values]
    return [*dict.fromkeys(v for v in values if v is not None)]
