"""Lowerings other than the declared node: decomposed, overriding, of several nodes; and faults that the gates refuse.

Each export runs in a child process, as in the pipeline: registrations must not leak from one to the next.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import pytest

from opmatrix.basics.errors import SpecError
from opmatrix.basics.files import write_text
from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.project.cells import Cell
from opmatrix.spec import Lowering
from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = pytest.mark.torch

LEGACY = Cell(torch="2.13", exporter="legacy", opset=20, ort="1.31")
OLD = replace(LEGACY, opset=9)
DYNAMO = Cell(torch="2.13", exporter="dynamo", opset=20, ort="1.31")
CELLS = (LEGACY, DYNAMO)


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Import and build in this process what all children need."""
    from opmatrix.export import exporters

    exporters.warm_up()


@pytest.fixture
def made(tmp_path: Path) -> Project:
    """A project that a test may edit, with the Python part of the generated code and few models of group_norm."""
    names = ("group_norm", "gelu", "inverse", "add_and_round", "custom_op_one", "custom_op_two", "dual_residual")
    project = Project.copy(tmp_path / "project", operators=names)
    for name in names:
        for file, text in python_modules.render(load_operator(project.paths, name).spec).items():
            write_text(project.paths.generated(name) / file, text)
    cases = project.paths.cases("group_norm")
    cases.write_text(cases.read_text() + '\nMODELS = (SEED, dynamic("float32"), flat("float64"))\n')
    return project


def export(
    made: Project, name: str, cell: Cell, lowering: Lowering = "custom", before: Callable[[], None] = lambda: None
) -> str:
    """Export in a child, which first calls `before`; return the message of its error, or ""."""
    from opmatrix.export import write_models as export

    operator = load_operator(made.paths, name)

    def work() -> None:
        before()
        export.run(made.paths, operator, lowering=lowering, cell=cell)

    return forked(work, made.root / "output")


def models(made: Project, name: str, cell: Cell, lowering: Lowering = "custom") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made.paths.manifest(name, lowering, cell).read_text())["models"]
    return found


def custom(model: dict[str, Any]) -> list[str]:
    return [f"{n['domain']}::{n['op_type']}" for n in model["nodes"] if n["domain"]]


@pytest.mark.parametrize("cell", [OLD, *CELLS], ids=str)
def test_the_decomposed_form_has_only_nodes_of_onnx(made: Project, cell: Cell) -> None:
    assert "group_norm/custom/" in export(made, "group_norm", cell, "decomposed"), "nothing to give a body to"
    assert export(made, "group_norm", cell) == ""
    assert export(made, "group_norm", cell, "decomposed") == ""
    found = models(made, "group_norm", cell, "decomposed")
    assert list(found) == ["seed", "dynamic_float32", "flat_float64"]
    for model in found.values():
        assert not custom(model)
        assert model["opset_imports"] == {"": cell.opset}
        assert {"ReduceMean", "Sqrt", "Reshape"} <= {n["op_type"] for n in model["nodes"]}


def test_both_exporters_give_the_three_nodes(made: Project) -> None:
    for cell in CELLS:
        assert export(made, "add_and_round", cell) == ""
        for model in models(made, "add_and_round", cell).values():
            kinds = [n["op_type"] for n in model["nodes"]]
            assert kinds == ["CustomOpOne", "CustomOpTwo", "Cast"]
            assert model["nodes"][0]["inputs"] == ["x", "x"]


@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("test.customop::CustomOpOne", "test.customop::CustomOpThree", "unexpected nodes test.customop::CustomOpThree"),
        ("ONNX[g.dtype(x)]", "6", "output 'y' has the dtype int32, declared: float32"),
    ],
)
def test_a_fault_of_several_nodes_is_refused(cell: Cell, old: str, new: str, expected: str, made: Project) -> None:
    made.replace("ops/add_and_round/lowering.py", old, new)
    assert expected in export(made, "add_and_round", cell)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_lowering_may_return_a_list_or_a_tuple(cell: Cell, made: Project) -> None:
    made.replace("build/generated/dual_residual/lowering.py", "return g.op(", "return list(g.op(")
    made.replace("build/generated/dual_residual/lowering.py", "outputs=2)", "outputs=2))")
    assert export(made, "dual_residual", cell) == ""


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_model_may_have_nodes_around_the_operator(cell: Cell, made: Project) -> None:
    assert export(made, "inverse", cell) == ""
    seed = models(made, "inverse", cell)["seed"]
    assert [n["op_type"] for n in seed["nodes"]] == ["Inverse", "Add"]
    assert seed["opset_imports"] == {"": 20, "com.microsoft": 1}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_built_in_gelu_is_refused(cell: Cell, made: Project) -> None:
    """The symbolic function is registered below the built-in one, and the translation under another overload."""

    def pass_over() -> None:
        from opmatrix.lowering import dynamo, legacy

        register = legacy.register
        mock.patch.object(legacy, "register", lambda lowered, opset, *more: register(lowered, 9, *more)).start()
        mock.patch.object(dynamo, "table", lambda *arguments: {}).start()

    message = export(made, "gelu", cell, before=pass_over)
    assert "no node com.microsoft::Gelu, found: Gelu. It was replaced by a built-in" in message
    assert "opset 20 itself (legacy); key the translation table by the overload" in message


@pytest.mark.parametrize("cell", [OLD, *CELLS], ids=str)
def test_the_manifest_has_the_refused_model(cell: Cell, made: Project) -> None:
    assert export(made, "gelu", cell) == ""
    found = models(made, "gelu", cell)
    assert "approximate='tanh' is another one" in found["tanh"]["refused"]
    refused = onnx.load_model(made.paths.model("gelu", "custom", cell, "tanh"))
    assert refused.doc_string == found["tanh"]["refused"] and not refused.HasField("graph")
    named = [name for name in found if not name.startswith("tanh")]
    assert {tuple(custom(found[name])) for name in named} == {("com.microsoft::Gelu",)}
    pictures = json.loads(made.paths.graph_drawings("gelu", "custom", cell).read_text())
    drawn = {name: [n["op"] for n in drawing["nodes"]] for name, drawing in pictures.items()}
    assert drawn == {name: ["Gelu"] for name in named}


def test_a_model_may_need_a_later_opset_in_one_lowering(made: Project) -> None:
    with made.paths.cases("group_norm").open("a") as cases:
        cases.write('MODELS = (half("float16"), half("bfloat16"))\n')
    refused, cells = {}, (OLD, LEGACY)
    for cell in cells:
        for lowering in ("custom", "decomposed"):
            assert export(made, "group_norm", cell, lowering) == ""
            found = models(made, "group_norm", cell, lowering)
            refused[cell, lowering] = {name: model["refused"] for name, model in found.items() if "refused" in model}
    reason = "group_norm-decomposed-bfloat16@torch2.13-legacy-opset9: Shape and Cast take bfloat16 since opset 13"
    assert refused.pop((OLD, "decomposed")) == {"bfloat16": reason}
    assert not any(refused.values())
    made.replace("ops/group_norm/cases.py", "min_opset=", "# ")
    assert export(made, "group_norm", OLD, "decomposed") == reason


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_an_undeclared_refusal_is_an_error(cell: Cell, made: Project) -> None:
    made.replace("ops/gelu/cases.py", "        unsupported=", "        # ")
    message = export(made, "gelu", cell)
    assert message.startswith("gelu-custom-tanh@torch2.13-")
    assert "com.microsoft::Gelu has the exact formula alone, and approximate='tanh' is another one" in message


def test_an_undeclared_version_of_the_domain_is_refused(made: Project) -> None:
    made.replace("ops/inverse/cases.py", "    around=plus_x,\n    cases=(", "    domain_version=5,\n    cases=(")
    with pytest.raises(SpecError, match=r"MODELS\[0\]\.domain_version: found 5, allowed: 1"):
        load_operator(made.paths, "inverse")


def test_a_translation_has_the_argument_names_of_torchs_schema(made: Project) -> None:
    """torch 2.6 to 2.9 silently ignore a function with other names."""
    from opmatrix.export.generated_modules import load_generated
    from opmatrix.lowering.dynamo import table
    from opmatrix.torch_ops import aten_overloads

    for name, expected in (("gelu", [["self", "approximate"]]), ("inverse", [["A"], ["self"]])):
        generated = load_generated(made.paths, name)
        found = table(generated.lowered("custom"), 18, {}, aten_overloads.overloads(generated.spec))
        assert [list(inspect.signature(f).parameters) for f in found.values()] == expected
    assert inspect.signature(next(iter(found.values()))).parameters


def test_an_override_for_other_versions_of_torch_is_refused(made: Project) -> None:
    made.replace("ops/gelu/spec.py", 'Override(name="aten::gelu")', 'Override(name="aten::gelu", last="2.12")')
    message = export(made, "gelu", DYNAMO)
    assert "it overrides aten::gelu from torch the first to 2.12, and this is torch 2.13. Widen the range" in message


def test_an_override_of_a_missing_operator_is_refused(made: Project) -> None:
    made.replace("ops/gelu/spec.py", 'Override(name="aten::gelu")', 'Override(name="aten::gelo")')
    assert "has no operator 'aten::gelo' with a default overload" in export(made, "gelu", DYNAMO)
