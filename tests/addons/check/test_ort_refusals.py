"""Why ONNX Runtime refuses a standard node: what it does not implement is told from what is wrong in the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from opmatrix.addons.check.inputs import ModelInputs
from opmatrix.addons.check.run_model import Runs, run
from opmatrix.ort_checks.sessions import OrtSessions

pytestmark = pytest.mark.ort

F, D, U16 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.UINT16


def model(node: NodeProto, *elements: int, opset: int = 18, domain: str = "", output: int = F) -> ModelProto:
    """Return a model of one node with inputs x, y and so on of one axis."""
    inputs = [helper.make_tensor_value_info(n, e, [3]) for n, e in zip("xyz", elements, strict=False)]
    outputs = [helper.make_tensor_value_info(o, output, None) for o in node.output]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.preview.training", 1)]
    return helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=imports, ir_version=8)


def refused(made: ModelProto, tmp_path: Path) -> Runs:
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    inputs = {value.name: np.ones(3, np.float32) for value in made.graph.input}
    return run(path, made, OrtSessions(None), [ModelInputs(inputs=inputs, source="from here", file=path)], [])


MISSING = {
    "an old version": (
        model(helper.make_node("PRelu", ["x", "y"], ["o"], "prelu"), F, F, opset=6),
        "does not implement PRelu 'prelu', version 6 of PRelu; it has: 16 and newer, 7 to 8, 9 to 15",
    ),
    "an operator": (
        model(helper.make_node("ImageDecoder", ["x"], ["o"], "image"), TensorProto.UINT8, opset=20, output=2),
        "does not implement ImageDecoder on the CPU: ImageDecoder 'image', version 20",
    ),
    "a domain": (
        model(helper.make_node("Gradient", ["x"], ["o"], "g", domain="ai.onnx.preview.training", xs=["x"], y="y"), F),
        "does not implement ai.onnx.preview.training::Gradient 'g', an operator of ai.onnx.preview.training",
    ),
}


@pytest.mark.parametrize(("made", "words"), MISSING.values(), ids=MISSING.keys())
def test_what_onnx_runtime_lacks_is_no_fault_of_the_model(made: ModelProto, words: str, tmp_path: Path) -> None:
    found = refused(made, tmp_path)
    assert found.missing
    assert words in str(found.finding)
    assert "ops/" not in str(found.finding)


WRONG = {
    "a dtype": (
        model(helper.make_node("Exp", ["x"], ["o"], "exp"), TensorProto.INT64, output=TensorProto.INT64),
        "Exp 'exp' takes no tensor(int64) as 'x' in opset 18. Cast it in the model",
    ),
    "an unknown operator": (
        model(helper.make_node("Gelu", ["x"], ["o"], "gelu"), F),
        "ONNX has no Gelu in version 18 of ai.onnx: Gelu 'gelu'",
    ),
}


@pytest.mark.parametrize(("made", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_in_the_model_is_named(made: ModelProto, words: str, tmp_path: Path) -> None:
    found = refused(made, tmp_path)
    assert not found.missing
    assert words in str(found.finding)
    assert "ops/" not in str(found.finding)


def test_a_part_of_an_operator_that_onnx_runtime_lacks_is_no_fault_either(tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(np.ones(s, np.float32), n) for n, s in (("w", (1, 4, 2)), ("r", (1, 4, 4)))]
    made = model(helper.make_node("RNN", ["x", "w", "r"], ["o"], "rnn", hidden_size=4, layout=1), F)
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", F, [3, 1, 2]))
    made.graph.initializer.extend(weights)
    found = refused(made, tmp_path)
    assert found.missing
    assert "Batchwise recurrent operations (layout == 1) are not supported" in str(found.finding)


def test_the_node_at_which_a_run_fails_is_named(tmp_path: Path) -> None:
    """The node has no name, and ONNX Runtime prints none."""
    made = model(helper.make_node("Softmax", ["x"], ["o"], axis=4), F, opset=18)
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", F, None))
    found = refused(made, tmp_path)
    assert not found.missing
    assert "fails at Softmax (gives 'o') (optimised), inputs from here: x float32[3]" in str(found.finding)
