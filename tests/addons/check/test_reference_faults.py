"""`doit check` where onnx.reference is wrong, or has a value of which ONNX says nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import parser

from opmatrix.addons.check import per_node
from tests.addons.check.judged import judged

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


NO_TENSORS = {
    "a sequence": ("seq(float[3]) y", "y = SequenceConstruct (x, x)"),
    "a longer sequence": ("seq(float[3]) y", "a = SequenceConstruct (x) n = Neg (x) y = SequenceInsert (a, n)"),
    "a map of a sequence": (
        "seq(float[3]) y",
        "a = SequenceConstruct (x, x) y = SequenceMap <body = b (float[3] i) => (float[3] o) { o = Neg (i) }> (a)",
    ),
    "none": ("seq(float) y", "y = SequenceEmpty ()"),
    "an optional": ("optional(float[3]) y", "y = Optional (x)"),
    "an element of an optional": ("float[3] y", "a = Optional (x) y = OptionalGetElement (a)"),
    "whether an optional has one": ("bool y", "a = Optional (x) y = OptionalHasElement (a)"),
}


@pytest.mark.parametrize(("output", "nodes"), NO_TENSORS.values(), ids=NO_TENSORS)
def test_what_is_no_tensor_is_compared(output: str, nodes: str, tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["":18]> g (float[3] x) => ({output}) {{ {nodes} }}'
    found = judged(text, tmp_path)
    assert found.outcome == "right" and found.reason.startswith("with onnx.reference, node by node: "), found


def test_a_sequence_that_differs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = per_node.References.evaluate

    def other(*given: Any) -> Any:
        values, judge = evaluate(*given)
        return {name: [2 * value for value in values] for name, values in values.items()}, judge

    monkeypatch.setattr(per_node.References, "evaluate", other)
    text = '<ir_version: 8, opset_import: ["":18]> g (float[3] x) => (seq(float[3]) y) { y = SequenceConstruct (x, x) }'
    found = judged(text, tmp_path)
    assert found.outcome == "disagree"
    assert "its outputs are no tensors to evaluate in float64" in found.reason


def test_a_model_with_a_random_node_among_others_is_unknown(tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["":18]> g (float[3] x) => (float[3] y)'
    text = f"{head} {{ r = RandomNormalLike (x) y = Add (x, r) }}"
    found = judged(text, tmp_path)
    assert (found.outcome, found.reason) == (
        "unknown",
        "the outputs are random (RandomNormalLike (gives 'r')), so they are not compared",
    )


OLDER = {
    **{
        f"{op_type} of opset {opset}{axis}": (opset, f"y = {op_type} {axis} (x)", "float[2,3,4] x")
        for op_type in ("Softmax", "LogSoftmax", "Hardmax")
        for opset in (7, 11, 12, 13)
        for axis in ("", "<axis = 0>", "<axis = 2>")
    },
    "RoiAlign of opset 10": (
        10,
        "r = Constant <value = float[1,4] {0, 0, 3, 3}> () b = Constant <value = int64[1] {0}> () "
        "y = RoiAlign <output_height = 2, output_width = 2> (x, r, b)",
        "float[1,2,5,5] x",
    ),
}


@pytest.mark.parametrize(("opset", "nodes", "inputs"), OLDER.values(), ids=OLDER)
def test_a_node_of_an_older_opset_is_compared_as_that(opset: int, nodes: str, inputs: str, tmp_path: Path) -> None:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["":{opset}]> g ({inputs}) => (float y) {{ {nodes} }}')
    made.graph.output[0].type.tensor_type.ClearField("shape")
    found = judged(made, tmp_path)
    assert found.outcome == "right", found


IGNORED = {
    "LSTM <hidden_size = 1, clip = 0.1> (x, w, r)": (4, "clip of LSTM"),
    'LSTM <hidden_size = 1, activations = ["Relu", "Tanh", "Tanh"]> (x, w, r)': (4, "activations of LSTM"),
    "GRU <hidden_size = 1, clip = 0.1> (x, w, r)": (3, "clip of GRU"),
    "RNN <hidden_size = 1> (x, w, r, , n)": (1, "sequence_lens of RNN"),
}


@pytest.mark.parametrize(("node", "count", "words"), [(node, *row) for node, row in IGNORED.items()])
def test_what_onnx_reference_ignores_is_no_disagreement(node: str, count: int, words: str, tmp_path: Path) -> None:
    w, r = (f"{{{', '.join(['0.5'] * size)}}}" for size in (2 * count, count))
    constants = f"<float[1,{count},2] w = {w}, float[1,{count},1] r = {r}, int32[2] n = {{3, 1}}>"
    head = '<ir_version: 8, opset_import: ["":14]> g (float[3,2,2] x) => (float[3,1,2,1] y)'
    made = parser.parse_model(f"{head} {constants} {{ y = {node} }}")
    found = judged(made, tmp_path)
    assert found.outcome == "unknown", found
    assert f"onnx.reference ignores {words}" in found.reason


def test_a_shape_that_onnx_infers_as_onnx_runtime_is_two_of_three(tmp_path: Path) -> None:
    node = 'MaxPool <kernel_shape = [2, 2], auto_pad = "SAME_LOWER", strides = [2, 2]> (x)'
    text = f'<ir_version: 8, opset_import: ["":17]> g (float[1,2,5,5] x) => (float[?,?,?,?] y) {{ y = {node} }}'
    found = judged(text, tmp_path)
    assert found.outcome == "disagree"
    assert "onnx infers float32[1, 2, 3, 3], as ONNX Runtime: two of three agree" in found.reason
