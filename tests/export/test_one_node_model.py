"""One-node models, made without torch: what is written, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from opmatrix.basics.errors import ExportError, UsageError
from opmatrix.codegen import python_modules
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.export import publish, signature, write_node_models
from opmatrix.export.manifest import graph_json
from opmatrix.export.signature import ExpectedModel
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute
from tests.support.double import DYNAMIC, OPERATOR, SPEC, project

CELL = Cell(torch=None, exporter="node", opset=18, ort="1.31")
ATTRIBUTES = (
    Attribute(name="factor", kind="float", default=0.1),
    Attribute(name="count", kind="int", default=3),
    Attribute(name="strict", kind="bool", default=True),
    Attribute(name="mode", kind="string", default="größer"),
    Attribute(name="scales", kind="floats", default=(0.5, 2.0)),
    Attribute(name="axes", kind="ints", default=(0, -1)),
    Attribute(name="flags", kind="bools", default=(True, False)),
    Attribute(name="names", kind="strings", default=("a", "")),
)


def generated(root: Path, operator: Operator = OPERATOR) -> Paths:
    """Make a project as the codegen stage leaves it."""
    paths = project(root)
    folder = paths.generated("double")
    folder.mkdir(parents=True)
    for name, text in python_modules.render(operator.spec).items():
        (folder / name).write_text(text)
    return paths


def written(paths: Paths, operator: Operator = OPERATOR, cell: Cell = CELL) -> ModelProto:
    write_node_models.run(paths, operator, lowering="custom", cell=cell)
    return onnx.load(paths.model("double", "custom", cell, operator.models[0].name))


def test_the_schema_is_the_only_generated_python() -> None:
    assert list(python_modules.render(SPEC)) == ["schema.py"]


def test_a_model_has_one_node_with_the_declared_names(tmp_path: Path) -> None:
    paths = generated(tmp_path)
    made = written(paths)
    assert [(n.domain, n.op_type, list(n.input), list(n.output)) for n in made.graph.node] == [
        ("test.domain", "Double", ["X"], ["Y"])
    ]
    assert {o.domain: o.version for o in made.opset_import} == {"": 18, "test.domain": 1}
    assert made.ir_version == 8
    manifest = json.loads(paths.manifest("double", "custom", CELL).read_text())
    assert (manifest["cell"], list(manifest["models"])) == ("node-opset18", ["dynamic"])
    assert json.loads(paths.graph_drawings("double", "custom", CELL).read_text()) == {"dynamic": graph_json(made)}


@pytest.mark.parametrize("opset", [7, 9, 25])
def test_every_legal_opset_can_be_written(tmp_path: Path, opset: int) -> None:
    operator = replace(OPERATOR, spec=replace(SPEC, min_opset=7))
    made = written(generated(tmp_path), operator, replace(CELL, opset=opset))
    assert made.opset_import[0].version == opset
    assert 3 <= made.ir_version <= 10


def test_every_kind_of_attribute_is_written(tmp_path: Path) -> None:
    operator = Operator(spec=replace(SPEC, attributes=ATTRIBUTES), models=(DYNAMIC,))
    made = written(generated(tmp_path, operator), operator)
    found = {a.name: onnx.helper.get_attribute_value(a) for a in made.graph.node[0].attribute}
    assert found.pop("factor") == pytest.approx(0.1)
    assert found == {
        "count": 3, "strict": 1, "mode": "größer".encode(), "scales": [0.5, 2.0], "axes": [0, -1], "flags": [1, 0],
        "names": [b"a", b""],
    }  # fmt: skip


def test_the_gates_check_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(expected_model: ExpectedModel) -> ModelProto:
        made = signature.one_node(expected_model)
        made.graph.node[0].op_type = "Doubel"
        return made

    monkeypatch.setattr(write_node_models, "one_node", faulty)
    with pytest.raises(ExportError, match=r"double-custom-dynamic@node-opset18: no node test\.domain::Double, found"):
        written(generated(tmp_path))


def test_another_tensor_in_the_node_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the declared dtype and shape, and one other element."""
    table = Attribute(name="table", kind="tensor", type="int64", dims=(None, 2))
    model = replace(DYNAMIC, attributes={**DYNAMIC.attributes, "table": ((1, 2), (3, 4))})
    operator = Operator(spec=replace(SPEC, attributes=(*SPEC.attributes, table)), models=(model,))
    paths = generated(tmp_path, operator)
    assert "table" in {a.name for a in written(paths, operator).graph.node[0].attribute}

    def faulty(expected_model: ExpectedModel) -> ModelProto:
        made = signature.one_node(expected_model)
        attribute = next(a for a in made.graph.node[0].attribute if a.name == "table")
        attribute.t.CopyFrom(onnx.numpy_helper.from_array(np.array([[1, 2], [3, 5]])))
        return made

    monkeypatch.setattr(write_node_models, "one_node", faulty)
    with pytest.raises(ExportError, match=r"'table' is \(\(1, 2\), \(3, 5\)\), declared: \(\(1, 2\), \(3, 4\)\)"):
        written(paths, operator)


def test_a_missing_schema_names_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"schema.py is missing. Run: python -m opmatrix codegen double"):
        written(project(tmp_path))


def test_an_illegal_opset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="the node exporter writes opsets 7 to 25, not 26"):
        written(generated(tmp_path), cell=replace(CELL, opset=26))


def test_a_decomposed_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="double-decomposed@node-opset18: one node stands for itself"):
        write_node_models.run(generated(tmp_path), OPERATOR, lowering="decomposed", cell=CELL)


def test_cells_of_an_operator_without_torch(root: Path) -> None:
    torch_cell = replace(CELL, torch="2.13", exporter="dynamo")
    assert OPERATOR.cells([CELL, torch_cell]) == (CELL,)
    group_norm = load_operator(Paths(root), "group_norm")
    assert group_norm.cells([CELL, torch_cell]) == (torch_cell,)
    assert "exists in ONNX alone" in str(OPERATOR.unavailable_reason(torch_cell))
    assert "choose a cell of torch" in str(group_norm.unavailable_reason(CELL))
    assert "its minimum opset is 9" in str(OPERATOR.unavailable_reason(replace(CELL, opset=7)))


def test_the_command_line_explains_why_a_cell_does_not_fit(root: Path) -> None:
    command = [sys.executable, "-m", "opmatrix", "export", "group_norm", "--cell", "node-opset18-ort1.31"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == UsageError.exit_code
    assert done.stderr == (
        "node-opset18-ort1.31: group_norm has a torch operator, from which its models are exported; choose a cell of "
        "torch\n"
    )


def test_a_published_node_has_the_names_of_onnx_and_casts(tmp_path: Path) -> None:
    attribute = Attribute(name="factor", onnx_name="alpha", kind="float", default=2.0)
    part = replace(SPEC.inputs[0], type="float32", onnx_type="float16")
    output = replace(SPEC.outputs[0], type="float32")
    model = replace(DYNAMIC, types={})
    spec = replace(SPEC, lowerings=("custom",), types={}, inputs=(part,), attributes=(attribute,), outputs=(output,))
    publish.run(project(tmp_path), Operator(spec=spec, models=(model,)))
    made = onnx.load(Paths(tmp_path).published_model("double", 1))
    cast, node = made.graph.node
    assert (cast.op_type, [*cast.input], [*node.input], [*node.output]) == ("Cast", ["x"], ["x/float16"], ["y"])
    assert [a.name for a in node.attribute] == ["alpha"]
    assert [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == [2, 3]
