"""The runner of the faults: what it copies, and what it takes for found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.conftest import Edit, Planted, plant, problem
from tests.support.projects import ROOT, Project

PLANTED = Planted(op="f", step="register:kernel", says="y differs")
FOUND = ("register:f-kernel@torch2.13", "f-plain in torch: y differs")


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        ([FOUND], ""),
        ([], "no step failed"),
        ([(FOUND[0], "x differs")], "'y differs' must be said"),
        ([("compile:f", "y differs")], "register:f-kernel* alone must fail"),
        ([("data:f", "y differs"), FOUND], "register:f-kernel* alone must fail"),
    ],
)
def test_what_is_found(failed: list[tuple[str, str]], said: str) -> None:
    wrong = problem(PLANTED, failed)
    assert said in wrong and bool(said) == bool(wrong)


def test_both_exporters_find_a_fault() -> None:
    planted = Planted(op="f", step="export:custom@torch2.13*", says="is missing")
    legacy, dynamo = (f"export:f-custom@torch2.13-{exporter}-opset18" for exporter in ("legacy", "dynamo"))
    assert problem(planted, [(legacy, "it is missing"), (dynamo, "it is missing")]) == ""
    assert "in every exporter" in problem(planted, [(legacy, "it is missing"), (dynamo, "")])


def test_a_copy_in_which_a_step_fails_is_a_failure() -> None:
    sound = Planted(op="f", step="register:kernel")
    assert problem(sound, []) == "" and "y differs" in problem(sound, [FOUND])


def test_a_text_that_is_not_there_is_a_failure() -> None:
    with pytest.raises(AssertionError, match=r"'a' is not in ops/f/spec\.py"):
        Edit(file="ops/f/spec.py", old="a", new="b").apply("c")


def test_a_copy_has_names_of_its_own(tmp_path: Path) -> None:
    project = Project(tmp_path)
    fault = Planted(op="dual_residual", step="data", edits=[Edit(file="ops/dual_residual/more.py", new="# more")])
    assert plant(fault, ROOT, project, 3) == "dual_residual_copy3"
    spec = project.paths.spec("dual_residual_copy3").read_text()
    assert 'name="dual_residual_copy3"' in spec and 'OnnxOp(domain="rknn_cst_copy3"' in spec
    assert 'TorchOp(name="cst_copy3::dual_residual_copy3")' in spec
    assert (project.root / "ops/dual_residual_copy3/more.py").read_text() == "# more"
