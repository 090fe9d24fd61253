"""Every operator in every default cell of this environment, as one test each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.layout import Layout
from pipeline.load import load_operators
from pipeline.matrix import Cell
from pipeline.project import default_cells

ROOT = Path(__file__).parents[2]
LAYOUT = Layout(ROOT)
NAMES = [
    f"{operator.name}-{lowering}@{cell}"
    for operator in load_operators(LAYOUT)
    for lowering in operator.spec.lowerings
    for cell in operator.cells(default_cells(LAYOUT))
]

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


@pytest.fixture(scope="module")
def run() -> subprocess.CompletedProcess[str]:
    """Bring this checkout up to date, as a person would."""
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


def test_the_report_holds_these_cells_and_no_others(records: dict[str, dict[str, Any]]) -> None:
    assert sorted(records) == sorted(NAMES)


def test_doit_says_so(run: subprocess.CompletedProcess[str]) -> None:
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_second_run_repeats_nothing(run: subprocess.CompletedProcess[str]) -> None:
    again = subprocess.run([sys.executable, "-m", "doit"], cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0
    assert "up to date" in again.stdout + again.stderr, again.stdout + again.stderr
