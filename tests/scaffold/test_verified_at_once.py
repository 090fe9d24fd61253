"""New operators compile, export with both exporters and are verified at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from opmatrix.declaration.load import load_operator
from opmatrix.spec import Dims, FromKernel, SameAs
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

EVERY = (
    "my::every(Tensor x, Tensor y, Tensor? mask, Tensor[] others, float a, int[] axes=[0, 1], str mode='sum', "
    "bool strict=True, int n=3, float[] steps=[0.5]) -> (Tensor, Tensor)"
)
PLAIN = "my::plain(Tensor x, Tensor scale, float shift=0.0) -> Tensor"


def new(project: Project, *arguments: str, code: int = 0) -> str:
    """Return what `doit new` prints, or where its exit code is another, its errors."""
    command = [sys.executable, "-m", "doit", "new", *arguments]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == code and not (code and done.stdout), done.stderr
    return done.stderr if code else done.stdout


# Two nodes of a custom operator, one of them in a branch, and nodes of known operators.
MODEL = """<ir_version: 9, opset_import: ["" : 18, "acme" : 2, "com.microsoft" : 1]>
g (float[N, 4] x, bool yes) => (float[N, 4] out, float[N, 4] g) <float[4] weight = {0, 0, 0, 0}> {
    r = Relu (x)
    w = acme.Weird <alpha = 0.1, axes = [0], mode = "fast"> (r, weight, weight)
    g = com.microsoft.Gelu (w)
    out = If (yes) <
        then_branch = t () => (float[N, 4] t) { t = acme.Weird <alpha = 0.25, axes = [1], mode = "fast"> (r, weight) },
        else_branch = e () => (float[N, 4] e) { e = Identity (r) }
    >
}"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.copy(tmp_path_factory.mktemp("new"), operators=())
    new(made, "--schema", PLAIN, "--domain", "my.domain")
    new(made, "--schema", EVERY, "--domain", "my.domain")
    onnx.save(onnx.parser.parse_model(MODEL), made.root / "model.onnx")
    said = new(made, "--from-onnx", "model.onnx")
    assert "weird: passes all gates" in said
    return made


def test_new_operators_are_verified_at_once(project: Project) -> None:
    project.passes("opsets=9,18,20")
    records = project.records()
    assert {(r["op"], r["exporter"]) for r in records.values()} == {
        *((op, exporter) for op in ("plain", "every") for exporter in ("legacy", "dynamo")),
        ("weird", "node"),
    }  # fmt: skip
    assert {r["outcome"] for r in records.values()} == {"verified"} and len(records) == 2 * 5 + 3


def test_a_node_in_a_branch_is_declared(project: Project) -> None:
    spec = (project.root / "ops/weird/spec.py").read_text()
    assert "Declared from 2 nodes of model.onnx" in spec
    assert 'Input(name="weight_2", type="T", optional=True, doc="TODO; in the model of shape (4,)")' in spec


TABLE = np.array([[1 / 3, 2**-60, np.nan], [0, -np.inf, 0.1]])
ZERO = np.array(7, np.uint8)
tensor = onnx.numpy_helper.from_array
FIRST = TABLE[:1]


def kinds(path: Path) -> Path:
    """Write a model whose nodes have inputs and outputs of many dtypes, names and shapes."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Unpack", ["data"], ["numbers"], domain="acme", block=4),
        helper.make_node("Pack", ["x"], ["packed", "scale"], domain="acme"),
        helper.make_node("Lookup", ["ids", "x"], ["rows"], domain="acme", template=tensor(TABLE), zero=tensor(ZERO)),
        helper.make_node("Lookup", ["ids", "x"], ["more"], domain="acme", template=tensor(FIRST), zero=tensor(ZERO)),
        helper.make_node("Mask", ["yes", "x"], ["masked", "any"], domain="acme"),
        helper.make_node("Signed", ["x", "", "bias"], ["signed"], domain="acme", signed=1, modes="a"),
        helper.make_node("Join", ["words"], ["joined", "upper"], domain="acme", axis=1, by=0.5, labels=["a", "ü"]),
        helper.make_node("Signed", ["numbers"], ["again"], domain="acme", signed=0, modes="b"),
    ]
    inputs = [
        value("data", TensorProto.UINT8, [2, 3]), value("x", TensorProto.FLOAT, ["N", 8]),
        value("ids", TensorProto.INT64, ["M"]), value("yes", TensorProto.BOOL, ["N"]),
        value("bias", TensorProto.FLOAT, [8]), value("words", TensorProto.STRING, [2, "M"]),
    ]  # fmt: skip
    outputs = [
        value("numbers", TensorProto.FLOAT, [2, 6]), value("packed", TensorProto.UINT8, ["N", 8]),
        value("scale", TensorProto.UINT8, ["N", 2]), value("rows", TensorProto.FLOAT, ["M", 8]),
        value("more", TensorProto.FLOAT, ["M", 8]),
        value("masked", TensorProto.FLOAT, ["N", 8]), value("any", TensorProto.BOOL, []),
        value("signed", TensorProto.FLOAT, ["N", 8]), value("again", TensorProto.FLOAT, [2, 6]),
        value("joined", TensorProto.STRING, [2]), value("upper", TensorProto.STRING, [2, "M"]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return path


def test_operators_have_the_dtypes_names_and_shapes_of_the_model(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, operators=())
    new(project, "--from-onnx", str(kinds(project.root / "kinds.onnx")))
    declared = {
        name: [(o.name, o.type, o.shape) for o in load_operator(project.paths, name).spec.outputs]
        for name in ("unpack", "pack", "lookup", "mask", "signed_op", "join")
    }
    assert declared == {
        "unpack": [("numbers", "float32", FromKernel(rank=2))],
        "pack": [("packed", "uint8", SameAs(input="x")), ("scale", "uint8", FromKernel(rank=2))],
        "lookup": [("rows", "float32", FromKernel(rank=2))],
        "mask": [("masked", "float32", SameAs(input="x")), ("any", "T", Dims(dims=()))],
        "signed_op": [("y", "T", SameAs(input="x"))],
        "join": [("joined", "T", FromKernel(rank=1)), ("upper", "T", SameAs(input="words"))],
    }
    (seen,) = [m for m in load_operator(project.paths, "join").models if m.name == "seen"]
    assert dict(seen.attributes) == {"axis": 1, "by": 0.5, "labels": ("a", "ü")}
    lookup = load_operator(project.paths, "lookup")
    assert [(a.onnx_name or a.name, a.type, a.dims) for a in lookup.spec.attributes] == [
        ("template", "float64", (None, 3)), ("zero", "uint8", ()),
    ]  # fmt: skip
    values = {lookup.spec.attributes[0].name: tuple(map(tuple, TABLE.tolist())), "zero": 7}
    assert repr([{k: m.attributes[k] for k in values} for m in lookup.models]) == repr([values] * len(lookup.models))
    project.passes("opsets=18")
    assert {r["op"]: r["outcome"] for r in project.records().values()} == dict.fromkeys(declared, "verified")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from-onnx", "model.onnx"], "declared already: acme::Weird in ops/weird/"),
        (["--from-onnx", "plain.onnx"], "plain.onnx: every node is known"),
        (["--from-onnx", "broken.onnx"], "broken.onnx: no model of ONNX can be read"),
        (
            ["--override", "aten::sinnh", "--domain", "my.aten"],
            "has no operator 'aten::sinnh'; did you mean 'aten::sinh'",
        ),
        (["--override", "add", "--domain", "my.aten"], "aten::add cannot be overridden"),
    ],
)
def test_a_model_without_unknown_nodes_and_an_unknown_operator_are_reported(
    project: Project, torch: Any, arguments: list[str], message: str
) -> None:
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [])
    onnx.save(helper.make_model(graph), project.root / "plain.onnx")
    (project.root / "broken.onnx").write_bytes(b"no model")
    said = new(project, *arguments, code=2)
    assert message in said and ("sinnh" not in message or f"torch {torch.__version__} {message}" in said)


def test_an_override_has_no_placeholder_reference(tmp_path: Path) -> None:
    """The reference of an override raises an error, so that no cell passes by chance."""
    project = Project.copy(tmp_path, operators=())
    said = new(project, "--override", "aten::softplus", "--domain", "my.aten")
    assert "softplus: passes only compile and export until you write ops/softplus/reference.py." in said
    done = project.doit("data")
    assert done.returncode and "NotImplementedError: TODO: aten::softplus in NumPy" in done.stdout + done.stderr
    spec = (project.root / "ops/softplus/spec.py").read_text()
    assert 'Attribute(name="threshold", kind="int", default=20' in spec
