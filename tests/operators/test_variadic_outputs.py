"""Outputs of any number of tensors: verified in all cells. tests/faults has the faults: variadic, check_kernels.

tests/projects/variadic: scale_all has one for each tensor of its input, with a gradient; split_rows has as many as an
attribute says, behind another output; add_each, of ONNX alone, one for each item of a list; deal has strings and uint4.
"""

from __future__ import annotations

import json
import subprocess
import sys

import onnx
import pytest
from onnx import ModelProto

from opmatrix.data import write_data
from opmatrix.declaration.load import load_operator
from tests.support.projects import Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("variadic", tmp_path_factory.mktemp("variadic"), "opsets=18")


def test_every_gate_passes(project: Project) -> None:
    report = json.loads((project.paths.report / "report.json").read_text())
    assert {(cell["op"], cell["exporter"]): cell["outcome"] for cell in report["cells"]} == {
        ("scale_all", "legacy"): "verified",
        ("scale_all", "dynamo"): "verified",
        ("split_rows", "legacy"): "verified",
        ("split_rows", "dynamo"): "verified",
        ("add_each", "node"): "verified",
        ("deal", "node"): "verified",
    }
    searched = {c["op"]: (c["outcome"], c["weak"]) for c in report["checks"] if c["check"] == "search"}
    assert searched == {"scale_all": ("verified", []), "split_rows": ("verified", [])}
    assert ("scale_all", "gradient", "verified") in {(c["op"], c["check"], c["outcome"]) for c in report["checks"]}


def run(program: str, *arguments: str) -> str:
    """Run Python in a process of its own, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def exported(project: Project, operator: str, exporter: str, model: str) -> ModelProto:
    cell = "node-opset18" if exporter == "node" else f"torch2.13-{exporter}-opset18"
    return onnx.load(project.paths.build / f"export/{operator}/custom/{cell}/{model}/model.onnx")


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_the_node_names_each_tensor(project: Project, exporter: str) -> None:
    def outputs(operator: str, model: str) -> list[tuple[str, list[object]]]:
        found = exported(project, operator, exporter, model)
        (node,) = found.graph.node
        assert [o.name for o in found.graph.output] == list(node.output)
        return [
            (o.name, [d.dim_param or d.dim_value for d in o.type.tensor_type.shape.dim]) for o in found.graph.output
        ]

    assert outputs("scale_all", "three") == [("ys_0", [2, 3]), ("ys_1", [5]), ("ys_2", [1, 2, 2])]
    assert outputs("scale_all", "dynamic") == [("scaled_0", ["N", 3]), ("scaled_1", ["N", 3])]
    assert outputs("split_rows", "two") == [("left", []), ("blocks_0", ["N", 2]), ("blocks_1", ["N", 2])]
    assert outputs("split_rows", "one") == [("left", []), ("blocks_0", ["N", 3])]


# These read what the first run built: a fault below leaves its library until the next run.


def test_the_right_nodes_pass_doit_check(project: Project) -> None:
    cells = {
        "scale_all": "torch2.13-legacy-opset18",
        "split_rows": "torch2.13-dynamo-opset18",
        "add_each": "node-opset18",
    }
    for operator, cell in cells.items():
        path = project.paths.build / f"export/{operator}/custom/{cell}/three/model.onnx"
        project.passes("check", str(path))


# A call in torch, and the message of the binding and of the fake kernel.
CALLS = {
    "torch.ops.variadic.scale_all([])": "scale_all: xs must have at least one tensor, got none",
    "torch.ops.variadic.scale_all([x, x.double()])": (
        "scale_all: xs must be float32 as its first tensor is, got float64"
    ),
    "torch.ops.variadic.scale_all([x.int()])": "scale_all: xs must be float32 or float64, got int32",
    "torch.ops.variadic.split_rows(x, 0)": "split_rows: count must be at least 1, got 0",
}


PROGRAM = """
import json, sys, torch
for name in ("scale_all", "split_rows"):
    torch.ops.load_library(f"{sys.argv[1]}/compile/{name}/lib{name}_torch.so")
    sys.path.insert(0, f"{sys.argv[1]}/generated/{name}")
    __import__("fake").register_fake()
    del sys.modules["fake"], sys.path[0]
said = []
for call in json.loads(sys.argv[2]):
    for device in ("cpu", "meta"):
        x = torch.ones(2, 3, device=device)
        try:
            said.append(str(eval(call)))
        except RuntimeError as error:
            said.append(str(error).partition(chr(10))[0].replace("torch.", ""))
made = torch.ops.variadic.scale_all([torch.ones(2), torch.ones(3)], 2.0)
left, blocks = torch.ops.variadic.split_rows(torch.arange(10.0).reshape(2, 5), 2)
print(json.dumps([said, [tensor.tolist() for tensor in made], left.item(), [tensor.tolist() for tensor in blocks]]))
"""


def test_the_binding_and_the_fake_kernel_raise_for_the_same_calls(project: Project) -> None:
    said, made, left, blocks = json.loads(run(PROGRAM, str(project.paths.build), json.dumps([*CALLS])))
    assert said == [message for message in CALLS.values() for _ in ("cpu", "meta")]
    assert made == [[2.0, 2.0], [2.0, 2.0, 2.0]]
    assert (left, blocks) == (1, [[[0.0, 1.0], [5.0, 6.0]], [[2.0, 3.0], [7.0, 8.0]]])


def test_a_binding_that_stores_no_strings_is_found(project: Project) -> None:
    with edited(
        project.root / "native/binding/ort_outputs.h", "for (Output<T>& output : outputs_) output.store();", ""
    ):
        done = project.doit("opsets=18", "verify:deal-custom@node-opset18-ort1.31")
    message = "string_7_3@node-opset18-ort1.31: output 'hands_0': 2 of 2 elements differ"
    assert done.returncode != 0 and message in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.deep
def test_vectors_of_others_name_each_tensor(project: Project) -> None:
    """An .npz has blocks_0, blocks_1, as ONNX test data have a file for each."""
    import numpy as np

    folder = project.root / "ops/split_rows"
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    np.savez(folder / "others.npz", x=x, left=np.array(1), blocks_0=x[:, :2], blocks_1=x[:, 2:4])
    cases = folder / "cases.py"
    before = cases.read_text()
    imported = before.replace("import Case,", "import FromVectors, Vectors, Values, Case,")
    cases.write_text(f"""{imported}
VECTORS = Vectors(path="others.npz", source="torch.split 2.13", licence="BSD-3-Clause")
MODELS = (*MODELS, Model(name="of_others", types={{"T": "float32"}}, attributes={{"count": 2}}, cases=(
    Case(name="traced", inputs={{"x": Random(shape=(2, 5))}}),
    Case(name="of_others", inputs={{"x": FromVectors(shape=(2, 5))}}, expected=VECTORS),
)))
""")
    try:
        write_data.run(project.paths, load_operator(project.paths, "split_rows"))
        project.passes("opsets=18", "split_rows")
    finally:
        cases.write_text(before)
        (folder / "others.npz").unlink()
