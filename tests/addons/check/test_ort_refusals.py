"""Why ONNX Runtime refuses a standard node: what it does not implement is told from what is wrong in the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, parser

from opmatrix.addons.check.inputs import ModelInputs
from opmatrix.addons.check.run_model import Runs, run
from opmatrix.ort_checks.sessions import OrtSessions

pytestmark = pytest.mark.ort


def model(
    node: str, inputs: str = "float[3] x", *, opset: int = 18, output: str = "float", more: str = ""
) -> ModelProto:
    """Return a model of one node that gives o."""
    imports = f'"": {opset}, "ai.onnx.preview.training": 1'
    return parser.parse_model(
        f"<ir_version: 8, opset_import: [{imports}]> g ({inputs}) => ({output}[] o) <{more}> {{ o = {node} }}"
    )


def refused(made: ModelProto, tmp_path: Path) -> Runs:
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    inputs = {value.name: np.ones(3, np.float32) for value in made.graph.input}
    return run(path, made, OrtSessions(None), [ModelInputs(inputs=inputs, source="from here", file=path)], [])


MISSING = {
    "an old version": (
        model("PRelu (x, y)", "float[3] x, float[3] y", opset=6),
        "does not implement PRelu (gives 'o'), version 6 of PRelu; it has: 16 and newer, 7 to 8, 9 to 15",
    ),
    "an operator": (
        model("ImageDecoder (x)", "uint8[3] x", opset=20, output="uint8"),
        "does not implement ImageDecoder on the CPU: ImageDecoder (gives 'o'), version 20",
    ),
    "a domain": (
        model('ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x)'),
        "does not implement ai.onnx.preview.training::Gradient (gives 'o'), an operator of ai.onnx.preview.training",
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
        model("Exp (x)", "int64[3] x", output="int64"),
        "Exp (gives 'o') takes no tensor(int64) as 'x' in opset 18. Cast it in the model",
    ),
    "an unknown operator": (
        model("Gelu (x)"),
        "ONNX has no Gelu in version 18 of ai.onnx: Gelu (gives 'o')",
    ),
}


@pytest.mark.parametrize(("made", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_in_the_model_is_named(made: ModelProto, words: str, tmp_path: Path) -> None:
    found = refused(made, tmp_path)
    assert not found.missing
    assert words in str(found.finding)
    assert "ops/" not in str(found.finding)


def test_a_part_of_an_operator_that_onnx_runtime_lacks_is_no_fault_either(tmp_path: Path) -> None:
    w, r = ", ".join("1" * 8), ", ".join("1" * 16)
    weights = f"float[1,4,2] w = {{{w}}}, float[1,4,4] r = {{{r}}}"
    made = model("RNN <hidden_size = 4, layout = 1> (x, w, r)", "float[3,1,2] x", more=weights)
    found = refused(made, tmp_path)
    assert found.missing
    assert "Batchwise recurrent operations (layout == 1) are not supported" in str(found.finding)


def test_the_node_at_which_a_run_fails_is_named(tmp_path: Path) -> None:
    """The node has no name, and ONNX Runtime prints none."""
    made = model("Softmax <axis = 4> (x)", "float[] x")
    found = refused(made, tmp_path)
    assert not found.missing
    assert "fails at Softmax (gives 'o') (optimised), inputs from here: x float32[3]" in str(found.finding)
