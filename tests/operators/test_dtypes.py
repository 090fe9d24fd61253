"""Operators of dtypes that few have pass all gates: halves, float8, strings, and four bits in the node or everywhere.

tests/projects/strings and four_bits have them in required, optional and variadic inputs, in a type variable with
others, and in outputs of a declared shape and of one that the kernel decides. In four_bits_in_torch they are int8 and
uint8 in torch (`onnx_type`). What packs the numbers of these tests is ONNX Runtime's own QuantizeLinear, Cast and
DequantizeLinear (ort_checks/cast_edges.py), and onnx in initializers. tests/faults has a file for each project.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from tests.support.projects import ROOT, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.ort]

_TORCH = (pytest.mark.torch, pytest.mark.slow)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A project: what doit runs and says, and the cells of each operator.

    `names` are what the `calls` of `op` in torch use; each has its message, or none. `checked` are models, and what
    `doit check` says of them.
    """

    opsets: str
    cells: Sequence[str]
    says: str = ""
    op: str = ""
    names: str = ""
    calls: Mapping[str, str] = field(default_factory=dict)
    checked: Mapping[str, str] = field(default_factory=dict)


ROWS = {
    "halves": Row(
        opsets="opsets=9,18",
        cells=("torch2.13-legacy-opset9", "torch2.13-legacy-opset18", "torch2.13-dynamo-opset18"),
        op="weighted_sum",
        names="""
def call(x, weights, values=(0.5, 1.0)):
    x = torch.tensor([[1.0, 2.0]], dtype=getattr(torch, x))
    return torch.ops.halves.weighted_sum(x, torch.tensor(values, dtype=getattr(torch, weights)))""",
        calls={
            "call('float16', 'float16')": "",
            "call('bfloat16', 'bfloat16', [0.5, -1.0])": (
                "weighted_sum: weights must be finite and at least 0, got -1 at (1,)"
            ),
            "call('float16', 'float16', [65504.0, float('inf')])": (
                "weighted_sum: weights must be finite and at least 0, got inf at (1,)"
            ),
            "call('float16', 'bfloat16')": "weights must be float16 as x is, got bfloat16",
            "call('float64', 'float64')": "weighted_sum: x must be float16, bfloat16 or float32, got float64",
        },
    ),
    "float8": Row(
        opsets="opsets=9,18,21",
        cells=(
            "torch2.13-legacy-opset9", "torch2.13-legacy-opset18", "torch2.13-dynamo-opset18",
            "torch2.13-dynamo-opset21",
        ),
        op="rescale",
        names="""
def call(x, scale, values=(0.5,)):
    x = torch.tensor([[1.0, 2.0]]).to(getattr(torch, x))
    return torch.ops.float8.rescale(x, torch.tensor(values).to(getattr(torch, scale)))""",
        calls={
            "call('float8_e5m2', 'float8_e5m2')": "",
            "call('float8_e4m3fn', 'float8_e4m3fn', [0.0])": (
                "rescale: scale must be finite and at least 0.125, got 0 at (0,)"
            ),
            "call('float8_e5m2', 'float8_e5m2', [float('inf')])": (
                "must be finite and at least 0.125, got inf at (0,)"
            ),
            "call('float8_e4m3fn', 'float8_e4m3fnuz')": "scale must be float8_e4m3fn as x is, got float8_e4m3fnuz",
            "call('float16', 'float16')": (
                "x must be float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz or float32, got float16"
            ),
        },
    ),
    "four_bits_in_torch": Row(
        opsets="opsets=20,21",
        cells=("torch2.13-dynamo-opset21",),
        says="legacy: torch's legacy exporter writes no opset from 21 on, where Cast takes int4",
        op="requantize",
        names="op, w = torch.ops.four_bits.requantize, lambda values: torch.tensor(values, dtype=torch.int8)",
        calls={
            "op(w([[-8, 7]]), None)": "",
            "op(w([[-9, 7]]), None)": "requantize: w must be at least -8 and at most 7, got -9 at (0, 0)",
            "op(w([[1, 2], [3, 100]]), None)": "requantize: w must be at least -8 and at most 7, got 100 at (1, 1)",
            "op(w([[1]]), w([16]).to(torch.uint8))": "requantize: offset must be at most 15, got 16 at (0,)",
            "op(w([[1]]).float(), None)": "requantize: w must be int8, got float32",
        },
        checked={
            "requantize/custom/torch2.13-dynamo-opset21/dynamic": "node by node: 1 node",
            "join_codes/custom/torch2.13-dynamo-opset21/two": "node by node: 1 node",
        },
    ),
    "four_bits": Row(
        opsets="opsets=9,18,21",
        cells=("torchNone-node-opset9", "torchNone-node-opset18", "torchNone-node-opset21"),
        checked={"pick_codes/custom/node-opset18/all": "inputs from test_data_set_0: table int4[5]"},
    ),
    "strings": Row(
        opsets="opsets=9,18",
        cells=("torchNone-node-opset9", "torchNone-node-opset18"),
        checked={"join_texts/custom/node-opset18/all": "first string[3, 2], prefix string[]"},
    ),
}  # fmt: skip


def of(name: str, *values: str) -> object:
    """Return the parameters of a test in one project."""
    return pytest.param(name, *values, marks=_TORCH if ROWS[name].calls else (), id="-".join((name, *values)))


def each(part: str) -> pytest.MarkDecorator:
    """Parametrize by the projects and their `calls`, or what is `checked`."""
    rows = [of(name, one) for name, row in ROWS.items() for one in getattr(row, part)]
    return pytest.mark.parametrize(("project", "one"), rows, indirect=["project"])


def only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("project", [*map(of, names)], indirect=True)


@pytest.fixture(scope="module")
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which `doit` has run, in a folder of its name."""
    name = request.param
    (folder := tmp_path_factory.mktemp("projects") / name).mkdir()
    made, row = Project.of(name, folder), ROWS[name]
    assert row.says in made.passes(row.opsets).stdout
    return made


@only(*ROWS)
def test_every_gate_passes(project: Project) -> None:
    row, operators = ROWS[project.root.name], sorted(path.name for path in (project.root / "ops").iterdir())
    found = {name: record["outcome"] for name, record in project.records().items()}
    assert found == {f"{name}-custom@{cell}-ort1.31": "verified" for cell in row.cells for name in operators}
    report = json.loads((project.paths.report / "report.json").read_text())
    drawn = [check for check in report["checks"] if check["check"] in ("draw-inputs", "search")]
    assert [(c["op"], c["outcome"], c["weak"]) for c in drawn] == [(name, "verified", []) for name in operators]


@each("calls")
def test_calls_in_torch(project: Project, one: str) -> None:
    row = ROWS[project.root.name]
    project.calls(row.op, f"{row.names}\nprint({one})", row.calls[one])


@each("checked")
def test_a_model_is_checked_node_by_node(project: Project, one: str) -> None:
    done = project.passes("check", f"build/export/{one}/model.onnx")
    assert ROWS[project.root.name].checked[one] in done.stdout, done.stdout


@only("halves", "float8")
def test_the_models_have_the_dtypes(project: Project) -> None:
    import onnx

    def types(values: Iterable[onnx.ValueInfoProto]) -> list[str]:
        return [onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type) for value in values]

    models = [*project.paths.build.glob("export/*/custom/*/*/model.onnx")]
    assert len(models) > len(ROWS[project.root.name].cells)
    for path in models:
        graph = onnx.load(path).graph
        name = {"float32": "FLOAT"}.get(path.parent.name, path.parent.name.upper().replace("_", ""))
        expected = ("WeightedSum", types(graph.output), [name, name])
        if project.root.name == "float8":
            expected = ("Rescale", [name, "FLOAT8E4M3FN", "FLOAT"], types(graph.input))
        assert ([n.op_type for n in graph.node], types(graph.output), types(graph.input)) == (
            [expected[0]],
            *expected[1:],
        )


@only("halves")
def test_gradients_are_compared_in_each_dtype(project: Project) -> None:
    (record,) = project.paths.build.glob("register/weighted_sum/gradient*.json")
    assert all(dtype in record.read_text() for dtype in ("float16", "bfloat16", "float32"))


@only("four_bits_in_torch")
def test_the_model_casts_at_the_edges_of_the_node(project: Project) -> None:
    import onnx
    from onnx import TensorProto

    graph = onnx.load(
        project.paths.build / "export/requantize/custom/torch2.13-dynamo-opset21/dynamic/model.onnx"
    ).graph
    assert [n.op_type for n in graph.node] == ["Cast", "Cast", "Requantize", "Cast", "Cast"]
    types = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)]
    assert types == [TensorProto.INT8, TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT, TensorProto.UINT8]
    inner = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    assert {inner[name] for name in graph.node[2].input} == {TensorProto.INT4, TensorProto.UINT4}


def test_an_older_onnx_runtime_has_neither_int4_nor_uint4() -> None:
    operator = load_operator(Paths(ROOT / "tests/projects/four_bits"), "add_saturated")
    found = {model.name: model.unsupported for model in operator.run_by("1.18").models}
    assert found["int8"] == "ONNX Runtime 1.18 carries no uint4; 1.21 is the first"
    assert found["int4"] == "ONNX Runtime 1.18 carries no int4, uint4; 1.21 is the first"
    assert not any(model.unsupported for model in operator.run_by("1.21").models)


@only("four_bits")
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


# A fault in which a kernel or a binding is wrong for the sanitizers alone, and what they say of it.
PLANTED = {
    "four_bits": (
        "sanitize:add_saturated", "native/binding/ort_int4.h", "numbers_.size() / 2;\n    T* const",
        "numbers_.size() / 2 + 1;\n    T* const", "AddressSanitizer",
    ),
    "strings": (
        "sanitize:split_words", "native/split_words/kernel.h", "  std::vector<std::string> all, without;",
        "  static std::string last; last = text.data[0];\n  std::vector<std::string> all, without;",
        "WARNING: ThreadSanitizer: ",
    ),
}  # fmt: skip


@only(*(name for name in ROWS if name != "four_bits_in_torch"))
@pytest.mark.slow
@pytest.mark.deep
def test_the_sanitizers_find_nothing_but_a_planted_fault(project: Project) -> None:
    """Also ThreadSanitizer's program, which has strings in inputs and outputs."""
    opsets = ROWS[project.root.name].opsets
    project.passes("-n", "2", opsets, "sanitize")
    if planted := PLANTED.get(project.root.name):
        step, file, old, new, message = planted
        with edited(project.root / file, old, new):
            project.fails(opsets, step, message=message)


@only("four_bits_in_torch")
@pytest.mark.deep
def test_drawn_inputs_and_forbidden_calls_of_the_sanitizers(project: Project) -> None:
    for folder in (project.root / "ops").iterdir():  # compiled by the fixture
        done = project.stage("ort-fuzz", folder.name)
        assert done.returncode == 0, done.stdout + done.stderr


@only("halves", "float8", "four_bits", "four_bits_in_torch")
@pytest.mark.slow
@pytest.mark.deep
def test_the_wheel_works_and_a_version_is_published(project: Project) -> None:
    project.passes("dist")
    operator = ROWS[project.root.name].op or "pick_codes"
    done = project.stage("publish", operator)
    assert done.returncode == 0, done.stdout + done.stderr
    project.passes(ROWS[project.root.name].opsets, f"verify:{operator}-custom@*")
    assert any(
        "published_1" in path.read_text() for path in project.paths.build.glob(f"verify/{operator}/custom/*.json")
    )
