"""`doit check` where onnx.reference is wrong, or has a value of which ONNX says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

from tests.model_check.judged import judged

pytestmark = pytest.mark.ort


CORRECTED = {
    "LRN": ("float[N,9,4,5] x", "y = LRN <size = 5, alpha = 0.5> (x)"),
    "LRN of one channel": ("float[N,1,4,5] x", "y = LRN <size = 3> (x)"),
    "GlobalMaxPool of one axis": ("float[N,3,4] x", "y = GlobalMaxPool (x)"),
    "GlobalMaxPool of two axes": ("float[N,3,4,5] x", "y = GlobalMaxPool (x)"),
    "GlobalMaxPool of three axes": ("float[N,3,4,5,6] x", "y = GlobalMaxPool (x)"),
}


@pytest.mark.parametrize(("inputs", "node"), CORRECTED.values(), ids=CORRECTED)
def test_what_onnx_reference_computes_wrongly_is_corrected(inputs: str, node: str, tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["":13]> g ({inputs}) => (float y) {{ {node} }}'
    made = parser.parse_model(text)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    found = judged(made, tmp_path)
    assert found.outcome == "right" and found.reason == "with onnx.reference, node by node: 1 node", found


@pytest.mark.parametrize("taken", [False, True])
def test_an_output_that_nobody_takes_is_not_compared(taken: bool, tmp_path: Path) -> None:
    """As the mask of a Dropout in inference, of which ONNX says nothing, and which is no bool before opset 10."""
    outputs = "float[3] y, float[3] m" if taken else "float[3] y"
    text = f'<ir_version: 8, opset_import: ["":9]> g (float[3] x) => ({outputs}) {{ y, m = Dropout (x) }}'
    found = judged(text, tmp_path)
    assert found.outcome == ("disagree" if taken else "right"), found
