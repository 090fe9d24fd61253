"""Operators with int4 and uint4 pass all gates. tests/faults/four_bits.toml has the faults.

tests/projects/four_bits: both in required, optional and variadic inputs, in a type variable with int8, in outputs of a
declared shape and of one that the kernel decides, and under rules for values. What packs and unpacks the numbers of the
tests is ONNX Runtime's own QuantizeLinear and DequantizeLinear (ort_checks/cast_edges.py), and onnx in initializers.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from tests.support.projects import ROOT, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.ort]

FOUR_BITS = ROOT / "tests/projects/four_bits"
OPERATORS = sorted(path.name for path in (FOUR_BITS / "ops").iterdir())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project, in which `doit` has run."""
    return Project.verified("four_bits", tmp_path_factory.mktemp("four_bits"), "opsets=9,18,21")


def test_every_gate_passes(project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items()}
    cells = (f"torchNone-node-opset{opset}-ort1.31" for opset in (9, 18, 21))
    assert found == {f"{name}-custom@{cell}": "verified" for cell in cells for name in OPERATORS}
    report = json.loads((project.paths.report / "report.json").read_text())
    drawn = [check for check in report["checks"] if check["check"] == "draw-inputs"]
    assert [(c["op"], c["outcome"], c["weak"]) for c in drawn] == [(name, "verified", []) for name in OPERATORS]


def test_an_older_onnx_runtime_carries_neither() -> None:
    operator = load_operator(Paths(FOUR_BITS), "add_saturated")
    found = {model.name: model.unsupported for model in operator.run_by("1.18").models}
    assert found["int8"] == "ONNX Runtime 1.18 carries no uint4; 1.21 is the first"
    assert found["int4"] == "ONNX Runtime 1.18 carries no int4, uint4; 1.21 is the first"
    assert not any(model.unsupported for model in operator.run_by("1.21").models)


def test_a_model_is_checked_node_by_node(project: Project) -> None:
    model = "build/export/pick_codes/custom/node-opset18/all/model.onnx"
    done = project.doit("check", model)
    assert done.returncode == 0 and "inputs from test_data_set_0: table int4[5]" in done.stdout, done.stdout


def test_numbers_that_onnx_has_packed(project: Project) -> None:
    """An odd number of them, as initializers; the results come out through ONNX Runtime's DequantizeLinear."""
    program = f"""
import ml_dtypes, numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper, numpy_helper
table = np.array([*range(-7, 8), 5, -1]).astype(ml_dtypes.int4)
index = np.array([14, 0, 7, 1, 13, 8, 6, 2, 15]).astype(ml_dtypes.uint4)
assert numpy_helper.from_array(index).raw_data == bytes([0x0E, 0x17, 0x8D, 0x26, 0x0F])
nodes = [
    helper.make_node("PickCodes", ["table", "index"], ["picked", "taken"], domain="four_bits.test"),
    helper.make_node("DequantizeLinear", ["picked", "one"], ["numbers"]),
    helper.make_node("DequantizeLinear", ["taken", "one"], ["places"]),
]
outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in ("numbers", "places")]
given = {{"table": table, "index": index, "one": np.float32(1)}}
graph = helper.make_graph(nodes, "g", [], outputs, [numpy_helper.from_array(a, n) for n, a in given.items()])
opsets = [helper.make_opsetid("", 21), helper.make_opsetid("four_bits.test", 1)]
model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
options = onnxruntime.SessionOptions()
options.register_custom_ops_library({str(project.paths.ort_library("pick_codes"))!r})
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
print(*(found.astype(int).tolist() for found in session.run(None, {{}})))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[7, -7, -6, 6, 1, -1, -5, 5] [14, 0, 1, 13, 8, 6, 2, 15]\n", done.stderr


@pytest.mark.slow
@pytest.mark.deep
def test_the_sanitizers_find_nothing_but_a_planted_fault(project: Project) -> None:
    project.passes("-n", "2", "opsets=18", "sanitize")
    with edited(
        project.root / "native/binding/ort_int4.h",
        "numbers_.size() / 2;\n    T* const",
        "numbers_.size() / 2 + 1;\n    T* const",
    ):
        project.fails("opsets=18", "sanitize:add_saturated", message="AddressSanitizer")


@pytest.mark.slow
@pytest.mark.deep
def test_a_wheel_works_and_a_version_is_published(project: Project) -> None:
    project.passes("dist")
    done = project.stage("publish", "pick_codes")
    assert done.returncode == 0, done.stdout + done.stderr
    done = project.doit("opsets=18")
    assert done.returncode == 0 and "published_1" in str(project.records()), done.stdout + done.stderr
