"""The runner of the faults: what it copies, and what it takes for found."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from docs.site.gates import HEAD
from tests.faults.conftest import Edit, Planted, plant, problem, write_model
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


def test_a_model_calls_the_copy_of_its_operator(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "rknn_cst": 1]>
        g (float[N] x) => (float[N] y, float[N] z) { y, z = rknn_cst.cstDualResidual <alpha = 2.0> (x, x) }"""
    edits = Edit(old="2.0", new="3.0"), Edit(file="native/dual_residual/kernel.h", new="// more")
    fault = Planted(op="dual_residual", model="residual", step="check", edits=edits)
    assert write_model(text, fault, ROOT, Project(tmp_path), 3) == "models/m3.onnx"
    found = onnx.load(tmp_path / "models/m3.onnx")
    assert [(o.domain, o.version) for o in found.opset_import] == [("", 18), ("rknn_cst_copy3", 1)]
    assert [(n.domain, n.attribute[0].f) for n in found.graph.node] == [("rknn_cst_copy3", 3.0)]


def without_another(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of a file that no change plants, and whose step finds none that each change plants."""
    rows = {name: data | tables[0] for name, tables in data.items() if name not in HEAD}
    steps = {row["step"].partition("@")[0] for row in rows.values() if "nightly" not in row}
    return (name for name, row in rows.items() if "nightly" in row and row["step"].partition("@")[0] not in steps)


@pytest.mark.parametrize("path", [*Path(__file__).parent.glob("*.toml")], ids=lambda path: path.stem)
def test_each_change_plants_a_fault_of_each_step(path: Path) -> None:
    assert [*without_another(tomllib.loads(path.read_text()))] == []


def test_a_step_that_is_left_to_the_night_is_found() -> None:
    data = tomllib.loads("""
        step = "data"
        [["a wrong value"]]
        [["another one"]]
        nightly = true
        [["a crash"]]
        step = "compile"
        nightly = true
    """)
    assert [*without_another(data)] == ["a crash"]
