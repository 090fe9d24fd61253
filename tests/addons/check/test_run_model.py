"""What `doit check` reports for each result, error and refusal of ONNX Runtime, which may lack what a model needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, parser

from opmatrix.addons.check import run_model
from opmatrix.addons.check.inputs import ModelInputs, tolerances
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


WEIGHTS = f"float[1,4,2] w = {{{', '.join('1' * 8)}}}, float[1,4,4] r = {{{', '.join('1' * 16)}}}"
REFUSED = {  # the model, whether ONNX Runtime lacks something, and words of the finding
    "an old version": (
        model("PRelu (x, y)", "float[3] x, float[3] y", opset=6), True,
        "does not implement PRelu (gives 'o'), version 6 of PRelu; it has: 16 and newer, 7 to 8, 9 to 15"),
    "an operator": (
        model("ImageDecoder (x)", "uint8[3] x", opset=20, output="uint8"), True,
        "does not implement ImageDecoder on the CPU: ImageDecoder (gives 'o'), version 20"),
    "a domain": (
        model('ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x)'), True,
        "does not implement ai.onnx.preview.training::Gradient (gives 'o'), an operator of ai.onnx.preview.training"),
    "a part of an operator": (
        model("RNN <hidden_size = 4, layout = 1> (x, w, r)", "float[3,1,2] x", more=WEIGHTS), True,
        "Batchwise recurrent operations (layout == 1) are not supported"),
    "a dtype": (
        model("Exp (x)", "int64[3] x", output="int64"), False,
        "Exp (gives 'o') takes no tensor(int64) as 'x' in opset 18. Cast it in the model"),
    "an unknown operator": (model("Gelu (x)"), False, "ONNX has no Gelu in version 18 of ai.onnx: Gelu (gives 'o')"),
    # The node has no name, and ONNX Runtime prints none.
    "a run": (
        model("Softmax <axis = 4> (x)", "float[] x"), False,
        "fails at Softmax (gives 'o') (optimised), inputs from here: x float32[3]"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "missing", "words"), REFUSED.values(), ids=REFUSED)
def test_what_onnx_runtime_lacks_is_told_from_what_is_wrong_in_the_model(
    made: ModelProto, missing: bool, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    inputs = {value.name: np.ones(3, np.float32) for value in made.graph.input}
    given = ModelInputs(inputs=inputs, source="from here", file=path)
    found = run_model.run(path, made, OrtSessions(None), [given], [])
    assert bool(found.missing) == missing
    assert words in str(found.finding) and "ops/" not in str(found.finding)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (np.float64([[1, 2]]), "dtype is float64"),
        (np.float32([1, 2]), "shape is (2,)"),
        (np.float32([[1, 2.5]]), "worst at (0, 1): expected 2.0, got 2.5"),
        ([], "a list"),
    ],
)
def test_an_output_that_is_not_the_expected_one_is_reported(got: Any, words: str) -> None:
    answers, expected = {"optimised": [got], "not optimised": [got]}, {"o": np.float32([[1, 2]])}
    (found,) = run_model.compare_with_expected(model("Relu (x)"), answers, expected, tolerances(None, None), of="torch")
    assert found.mark == "wrong" and words in found.text
