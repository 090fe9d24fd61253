"""A case as a folder runs with ONNX Runtime and NumPy alone, and finds what verify finds."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from opmatrix.basics.errors import UsageError, VerifyError
from opmatrix.data import dataset, write_data
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import Reference
from opmatrix.ort_checks import save_case
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CaseResult, Verdict
from opmatrix.search import drawn
from opmatrix.spec import Case, Model, Values
from tests.support import double
from tests.support.double import CELL, exported, write_model
from tests.support.taken_away import replayed

pytestmark = pytest.mark.ort

OPERATOR = replace(double.OPERATOR, spec=replace(double.SPEC, lowerings=("decomposed",)))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return exported(tmp_path / "project", OPERATOR, "decomposed")


def save(paths: Paths, case: str, into: Path) -> subprocess.CompletedProcess[str]:
    """Save a case, and replay it elsewhere."""
    save_case.run(paths, OPERATOR, lowering="decomposed", cells=[CELL], case=case, into=into)
    return replayed(into)


@pytest.mark.parametrize("case", ["plain", "special", "empty", "special_function"])
def test_a_case_that_passes_passes_elsewhere(paths: Paths, tmp_path: Path, case: str) -> None:
    done = save(paths, case, tmp_path / "saved")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[1].startswith("Y: 0 of ") and done.stderr == ""
    read_me = (tmp_path / "saved-elsewhere/README.txt").read_text()
    assert f"double-decomposed-{case}@{CELL}" in read_me and f'"onnxruntime=={CELL.ort}.*"' in read_me


def test_a_case_that_fails_fails_elsewhere(paths: Paths, tmp_path: Path) -> None:
    write_model(paths, "decomposed", double.model("decomposed", factor=3.0))
    done = save(paths, "special", tmp_path / "saved")
    assert done.returncode == 1 and done.stderr == ""
    assert "Y: 2 of 6 elements differ beyond rtol=1e-06 atol=0" in done.stdout
    assert "  (1, 1): expected 2.0, got 3.0" in done.stdout


def test_another_shape_is_found(paths: Paths, tmp_path: Path) -> None:
    folder = paths.data("double", "dynamic", 0)
    found = dataset.read(folder)
    dataset.write(folder, DataSet(inputs=found.inputs, outputs={"Y": np.zeros((3, 2), np.float32)}))
    done = save(paths, "plain", tmp_path / "saved")
    assert done.returncode == 1 and "Y: float32[2, 3], expected float32[3, 2]" in done.stdout


def test_dtypes_that_numpy_lacks_are_cast(paths: Paths, tmp_path: Path) -> None:
    types = {"T": "bfloat16"}
    case = Case(name="small", inputs={"x": Values(values=(1.0, -0.5, float("nan"), 3.140625))})
    model = Model(name="bfloat16", types=types, names={"x": "X", "y": "Y"}, cases=(case,))  # type: ignore[arg-type]
    made = replace(OPERATOR, models=(model,))
    values = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, [4]) for name in "XY"]
    graph = helper.make_graph([helper.make_node("Identity", ["X"], ["Y"])], "g", values[:1], values[1:])
    path = paths.model("double", "decomposed", CELL, "bfloat16")
    path.parent.mkdir(parents=True)
    opset = helper.make_opsetid("", 18)
    path.write_bytes(helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())
    write_data.run(paths, made)
    folder = paths.data("double", "bfloat16", 0)
    found = dataset.read(folder)
    dataset.write(folder, DataSet(inputs=found.inputs, outputs={"Y": found.inputs["X"]}))
    save_case.run(paths, made, lowering="decomposed", cells=[CELL], case="small", into=tmp_path / "saved")
    done = replayed(tmp_path / "saved")
    assert done.returncode == 0 and "Y: 0 of 4" in done.stdout, done.stdout + done.stderr
    assert "with casts" in (tmp_path / "saved-elsewhere/README.txt").read_text()


def test_what_is_missing_has_a_message(paths: Paths, tmp_path: Path) -> None:
    def run(case: str, into: Path | None = None) -> None:
        save_case.run(paths, OPERATOR, lowering="decomposed", cells=[CELL], case=case, into=into)

    with pytest.raises(UsageError, match="double has no case 'plian'; it has plain, special, empty, large"):
        run("plian")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="the folder has other files; name one that is empty or does not exist"):
        run("plain", tmp_path / "own")
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["notes.txt"]
    with pytest.raises(UsageError, match=r"notes\.txt: File exists\. Name a folder that can be written"):
        run("plain", tmp_path / "own/notes.txt")
    with pytest.raises(UsageError, match=r"below: Not a directory\. Name a folder"):
        run("plain", tmp_path / "own/notes.txt/below")
    run("plain")
    run("plain")
    assert (paths.build / f"saved/double-decomposed-plain@{CELL}/replay.py").is_file()
    paths.model("double", "decomposed", CELL, "dynamic").unlink()
    with pytest.raises(VerifyError, match="python -m opmatrix export double"):
        run("plain")


def test_without_a_cell_a_failing_one_is_taken(
    paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = CaseResult(case="special", model="dynamic", outcome="mismatched", detail="2 of 6 elements differ")
    found = Verdict(op="double", lowering="decomposed", cell=CELL, outcome="mismatched", cases=(wrong,))
    verdict.write(paths.verdict(*found.key), found)
    cells = [CELL, replace(CELL, opset=17)]
    save_case.run(paths, OPERATOR, lowering=None, cells=cells[::-1], case="special")
    place = f"double-decomposed@{CELL}"
    assert capsys.readouterr().out.splitlines() == [
        f"special fails in {place}",
        f"Replay with: python build/saved/double-decomposed-special@{CELL}/replay.py",
    ]
    save_case.run(paths, OPERATOR, lowering=None, cells=cells, case="plain", into=tmp_path / "right")
    said = capsys.readouterr().out.splitlines()[0]
    assert said == f"Taken from {place}, the first cell: no verdict says that plain fails"


def test_a_drawn_input_and_a_lowering_that_are_not_there(paths: Paths) -> None:
    both = replace(OPERATOR, spec=double.SPEC)
    with pytest.raises(UsageError, match="Run the search, or give the name of one: its message has it"):
        save_case.run(paths, both, lowering=None, cells=[CELL], case="drawn_inputs")
    model = replace(double.DYNAMIC, name="found_1", cases=(Case(name="found_1", inputs={"x": Values(values=(1.0,))}),))
    one = drawn.evaluate(double.SPEC, model, Reference(paths, double.SPEC))
    drawn.keep(paths, both, one, "y: it differs", where="torch", which="The smallest")
    contrib = replace(both, spec=replace(both.spec, runtime="contrib"))
    with pytest.raises(
        UsageError, match="Replay it in torch: python -m opmatrix register double --part search --case fo"
    ):
        save_case.run(paths, contrib, lowering=None, cells=[CELL], case="found_1")
    with pytest.raises(VerifyError, match=r"is missing\. Run: python -m opmatrix compile double"):
        save_case.run(paths, both, lowering=None, cells=[CELL], case="found_1")
    with pytest.raises(
        UsageError, match="no gradient 'gradient_plain' that differs; a failing check keeps one: python"
    ):
        save_case.run(paths, both, lowering=None, cells=[CELL], case="gradient_plain")
    with pytest.raises(UsageError, match="double has no lowering 'custom'; it has decomposed"):
        save_case.run(paths, OPERATOR, lowering="custom", cells=[CELL], case="plain")
