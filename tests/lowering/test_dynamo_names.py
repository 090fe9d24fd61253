"""Attributes of any name in the translation functions of the dynamo exporter."""

from __future__ import annotations

from typing import Any

import onnx_ir
import pytest

pytestmark = pytest.mark.torch

NAMES = [
    "self",
    "args",
    "kwargs",
    "schema",
    "op",
    "recorder",
    "inputs",
    "i0",
    "o0",
    "None",
    "class",
    "name",
    "opset",
    "x",
]


@pytest.mark.parametrize("name", NAMES)
def test_an_attribute_may_have_any_name(name: str, torch: Any) -> None:
    from onnxscript import evaluator, values
    from torch.onnx._internal.exporter import _building

    from opmatrix.lowering.dynamo import DynamoGraph

    recorder = _building.OpRecorder(values.Opset("", 18), {})
    x = onnx_ir.Value(name="x", type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT), shape=onnx_ir.Shape([2]))
    with evaluator.default_as(recorder):
        DynamoGraph(18, {}).op("my.domain::F", x, None, x, outputs=1, **{f"{name}_i": 3, "other_f": 0.5})
    (node,) = recorder.nodes
    assert {a.name: a.value for a in node.attributes.values()} == {name: 3, "other": 0.5}
    assert [value and value.name for value in node.inputs] == ["x", None, "x"]
