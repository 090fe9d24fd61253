"""Models with a function body run without the operator's library and its reference, with the same results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from onnx import ModelProto, helper

from opmatrix.basics.errors import ExportError, UsageError, VerifyError
from opmatrix.basics.files import load_module
from opmatrix.codegen import python_modules
from opmatrix.export.signature import ExpectedModel, with_function
from opmatrix.ort_checks import verify
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import Verdict
from tests.support.double import CELL, DYNAMIC, OPERATOR, SPEC, exported, model, with_body

pytestmark = pytest.mark.ort

PLAIN = ["plain", "special", "empty", "large"]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a project without faults and without a library."""
    return exported(tmp_path, OPERATOR, "custom", "decomposed")


def run(paths: Paths, *, case: str | None = None) -> None:
    verify.run(paths, OPERATOR, lowering="decomposed", cell=CELL, case=case)


def refused(paths: Paths, proto: ModelProto | None) -> tuple[Verdict, str]:
    path = paths.function_model("double", CELL, "dynamic")
    if proto:
        path.write_bytes(proto.SerializeToString())
    else:
        path.unlink()
    with pytest.raises(VerifyError) as caught:
        run(paths)
    return verdict.read(paths.verdict("double", "decomposed", CELL)), str(caught.value)


def test_every_case_also_runs_through_the_body(paths: Paths) -> None:
    run(paths)
    found = verdict.read(paths.verdict("double", "decomposed", CELL))
    assert found.outcome == "verified"
    assert [c.case for c in found.cases] == [*PLAIN, *(f"{case}_function" for case in PLAIN)]


def test_a_wrong_body_is_found(paths: Paths) -> None:
    found, message = refused(paths, with_body(factor=2.5))
    assert [c.outcome for c in found.cases] == ["verified"] * 4 + ["mismatched"] * 2 + ["verified", "mismatched"]
    assert message.startswith(f"double-decomposed-plain_function@{CELL}: 6 of 6 elements differ beyond")
    assert "The reference evaluator agrees with ONNX Runtime" in message
    with pytest.raises(VerifyError, match="double-decomposed-plain_function"):
        run(paths, case="plain_function")  # the command of the message


def test_a_node_without_a_body_needs_the_library(paths: Paths) -> None:
    found, message = refused(paths, model("custom"))
    assert found.outcome == "failed"
    assert "a node test.domain::Double, and no loaded library registers it" in message


def test_a_missing_model_is_reported(paths: Paths) -> None:
    assert "model_with_functions.onnx is not a readable model. Run: " in refused(paths, None)[1]


def test_an_unknown_case_is_a_usage_error(paths: Paths) -> None:
    with pytest.raises(UsageError, match="double has no case 'plan_function'"):
        run(paths, case="plan_function")


@pytest.fixture
def expected_model(tmp_path: Path) -> ExpectedModel:
    path = tmp_path / "schema.py"
    path.write_text(python_modules.render(SPEC)["schema.py"])
    schema = load_module(path, "double_schema").schema()
    return ExpectedModel(spec=SPEC, model=DYNAMIC, lowering="custom", cell=CELL, schema=schema)


def test_the_body_belongs_to_the_node(expected_model: ExpectedModel) -> None:
    made = with_function(model("custom", ir_version=4), expected_model, model("decomposed").graph.node)
    assert made.ir_version == 8
    (function,) = made.functions
    assert (function.domain, function.name) == ("test.domain", "Double")
    assert [list(function.input), list(function.output), list(function.attribute)] == [["X"], ["Y"], ["factor"]]
    assert [(o.domain, o.version) for o in function.opset_import] == [("", 18)]
    assert [n.op_type for n in made.graph.node] == ["Double"]


def test_a_body_that_the_checker_refuses(expected_model: ExpectedModel) -> None:
    nodes = [helper.make_node("Mull", ["X", "X"], ["Y"])]
    with pytest.raises(
        ExportError, match=r"double-custom-dynamic@.*: onnx.checker refuses it with a function body: .*Mull"
    ):
        with_function(model("custom"), expected_model, nodes)


def test_a_model_without_a_custom_form_has_no_body(paths: Paths) -> None:
    paths.function_model("double", CELL, "dynamic").unlink()
    operator = replace(OPERATOR, spec=replace(SPEC, lowerings=("decomposed",)))
    verify.run(paths, operator, lowering="decomposed", cell=CELL)
    assert len(verdict.read(paths.verdict("double", "decomposed", CELL)).cases) == len(PLAIN)
