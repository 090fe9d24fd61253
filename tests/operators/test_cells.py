"""Every operator in every default cell of this environment, as one test each.

The tests build this checkout, so that the cells of `./run tox` and the next `doit` of a user have nothing to do. Its
report may have verdicts of other cells, from an earlier run with other versions or opsets.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.files import read_list
from opmatrix.basics.version import minor
from opmatrix.declaration.load import Operator, load_operators, operator_names
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells, installed
from opmatrix.records import verdict

ROOT = Path(__file__).parents[2]
LAYOUT = Paths(ROOT)
NAMES = [
    f"{operator.name}-{lowering}@{cell}"
    for operator in load_operators(LAYOUT)
    for lowering in operator.spec.lowerings
    for cell in operator.cells(chosen_cells(LAYOUT))
]

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


@pytest.fixture(scope="module")
def run() -> subprocess.CompletedProcess[str]:
    """Build this checkout, as a user would."""
    return subprocess.run([sys.executable, "-m", "doit"], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def records(run: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    found = json.loads((LAYOUT.report / "report.json").read_text())["cells"]
    cells = [Cell(torch=r["torch"], exporter=r["exporter"], opset=r["opset"], ort=r["ort"]) for r in found]
    return {f"{r['op']}-{r['lowering']}@{cell}": r for r, cell in zip(found, cells, strict=True)}


@pytest.mark.parametrize("name", NAMES)
def test_cell(name: str, records: dict[str, dict[str, Any]]) -> None:
    record = records[name]
    assert record["outcome"] == "verified" or (record["outcome"] == "unsupported" and record["detail"]), record


def unexpected(records: Iterable[str], valid: Iterable[str]) -> set[str]:
    """Return the cells of the report that are neither of this environment nor `valid` from an earlier run."""
    return {*records} - {*NAMES} - {*valid}


def test_the_report_has_these_cells_and_only_valid_ones_of_earlier_runs(
    records: dict[str, dict[str, Any]],
) -> None:
    listed = map(Path, read_list(LAYOUT.verdict_list, root=LAYOUT.root))
    verdicts = map(verdict.read_any, listed)
    assert not unexpected(records, map(str, verdicts))


def test_the_report_may_have_a_valid_cell_of_an_earlier_run_and_no_other() -> None:
    other = "group_norm-custom@torch2.6-legacy-opset17-ort1.16"
    assert not unexpected([*NAMES, other], valid=[other])
    assert unexpected([*NAMES, other], valid=[]) == {other}


def test_doit_succeeds(run: subprocess.CompletedProcess[str]) -> None:
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_second_run_repeats_nothing(run: subprocess.CompletedProcess[str]) -> None:
    again = subprocess.run([sys.executable, "-m", "doit"], cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0
    assert "up to date" in again.stdout + again.stderr, again.stdout + again.stderr


OPCHECKS = {"test_schema", "test_autograd_registration", "test_faketensor"}
TRACE = {"test_aot_dispatch_dynamic"}  # of an operator with a gradient, not of every sample


def checks(name: str, part: str) -> dict[str, set[str]]:
    """Return the checks of each case in one part of register."""
    path = LAYOUT.register_manifest(name, part, torch=minor(installed().torch))
    found: dict[str, set[str]] = {}
    for result in json.loads(path.read_text())["results"]:
        if "case" in result:
            found.setdefault(result["case"], set()).add(result["check"])
    return found


@pytest.mark.parametrize("operator", [o for o in load_operators(LAYOUT) if o.spec.torch], ids=lambda o: o.name)
def test_every_operator_of_torch_passes_opcheck(operator: Operator, run: subprocess.CompletedProcess[str]) -> None:
    """Each of the four tests ran; all but the trace, on a finite case of each choice of dtypes."""
    found = {case: tests - {"inference", "memory formats"} for case, tests in checks(operator.name, "schema").items()}
    proved = {case: tests for case, tests in found.items() if tests}
    assert all(tests >= OPCHECKS for tests in proved.values())
    assert any(tests == OPCHECKS | TRACE for tests in proved.values())
    types = {tuple(m.types.items()) for m in operator.models for c in m.cases if c.name in proved}
    assert types == {tuple(m.types.items()) for m in operator.models}


def test_every_declared_gradient_is_checked_twice(run: subprocess.CompletedProcess[str]) -> None:
    declared = [name for name in operator_names(LAYOUT) if "def backward" in _text(LAYOUT.op(name) / "torch_op.py")]
    assert declared == ["group_norm"]
    for name in declared:
        assert all(tests == {"gradcheck", "gradgradcheck"} for tests in checks(name, "gradient").values())


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""
