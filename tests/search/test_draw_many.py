"""Inputs of an operator with many inputs are drawn at the first attempt, so that the time grows with their number."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from opmatrix.declaration.load import Operator
from opmatrix.scaffold.from_onnx import from_nodes
from opmatrix.search import draw_models, large
from opmatrix.spec import Case, Model, Random

# At 71b51ad8, in 60 s: "64 mixed", "128 mixed" and "64" and "200 of strings" had none; the other three were right.
KINDS = {
    "64 mixed": ["float32", "int64", "bool", "string"] * 16,  # a handed example of issue 33
    "1 of strings": ["string"],
    "64 of strings": ["float32", *["string"] * 63],
    "128 mixed": ["float32", "int64", "bool", "string"] * 32,
    "64 floats": ["float32"] * 64,
    "two of strings, last": [*["int64"] * 30, "string", "string"],
    "200 of strings": ["float32", *["string"] * 200],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_input_is_drawn_at_once(kind: str, tmp_path: Path) -> None:
    inputs = [{"name": f"x{n}", "dtype": dtype, "shape": [3, 4]} for n, dtype in enumerate(KINDS[kind])]
    node = {"name": "n", "domain": "my.dom", "op_type": "Mixed", "imported": 1, "inputs": inputs, "attributes": {}}
    spec = from_nodes([node | {"outputs": [inputs[0] | {"name": "y"}]}], shown="m.onnx").spec
    case = Case(name="plain", inputs={part.name: Random(shape=(3, 4)) for part in spec.inputs})
    types = {variable: dtypes[0] for variable, dtypes in spec.types.items()}
    operator = Operator(spec=spec, models=(Model(name="static", types=types, cases=(case,)),))
    choice = large.choices(operator)[0]
    with mock.patch.object(large, "drawn_model", wraps=large.drawn_model) as drawn:
        model = draw_models.one(choice.model(operator, 1000), seed="mixed", home=tmp_path)
    assert model is not None and drawn.call_count <= 2  # hypothesis begins with the smallest
