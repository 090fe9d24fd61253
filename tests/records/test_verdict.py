"""Verdicts on disk."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.project.cells import Cell
from opmatrix.records import verdict
from opmatrix.records.verdict import CaseResult, Verdict, percent

CELL = Cell(torch="2.13", exporter="dynamo", opset=18, ort="1.31")
CASE = CaseResult(
    case="large", model="static", outcome="mismatched", error=0.5, ulp=3.0, tolerance_used=1.5, detail="why"
)
FOUND = Verdict(op="op", lowering="custom", cell=CELL, outcome="mismatched", detail="1 case", cases=(CASE,))


def test_a_verdict_is_equal_after_it_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "verdict.json"
    verdict.write(path, FOUND)
    assert verdict.read(path) == FOUND


def test_names_and_replay() -> None:
    assert str(FOUND) == f"op-custom@{CELL}"
    assert FOUND.case_name("large") == f"op-custom-large@{CELL}"
    assert FOUND.replay("large") == f"python -m opmatrix verify op --lowering custom --cell {CELL} --case large"


def test_a_mismatch_without_a_finite_error_exceeds_any_limit(tmp_path: Path) -> None:
    wrong = replace(CASE, error=None, tolerance_used=None)
    assert (wrong.error, wrong.tolerance_used) == (math.inf, math.inf) and percent(math.inf) == ">999%"
    assert [percent(used) for used in (1.5, 9.99, 1e9)] == ["150%", "999%", ">999%"]
    assert replace(CASE, tolerance_used=None, outcome="failed").tolerance_used is None, "it did not run"
    found = replace(FOUND, cases=(wrong, CASE))
    assert (found.cases.error, found.cases.ulp, found.cases.tolerance_used) == (math.inf, 3.0, math.inf)
    verdict.write(tmp_path / "verdict.json", found)
    assert json.loads((tmp_path / "verdict.json").read_text())["cases"][0]["tolerance_used"] is None
    assert verdict.read(tmp_path / "verdict.json") == found


def test_only_finite_numbers_are_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        verdict.write(tmp_path / "verdict.json", replace(FOUND, cases=(replace(CASE, ulp=math.nan),)))


OLD = {"op": "op", "lowering": "custom", "cell": str(CELL), "outcome": "verified", "detail": "", "seconds": 1.0}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"cases": []}', '{"op": "op", "cases": [{"x": 1}]}', json.dumps(OLD | {"cases": []})],
)
def test_invalid_verdicts_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"not a verdict|Expecting"):
        verdict.read(path)


def test_a_missing_verdict_has_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        verdict.read(tmp_path / "none.json")
