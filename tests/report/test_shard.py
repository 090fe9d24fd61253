"""The report of `doit --shard`: every output says which part it is, and only the part's cells are asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import ReportError, UsageError
from opmatrix.commands import stages
from opmatrix.plan.shards import own_verdicts
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.step import CheckKey
from opmatrix.report import write_report
from opmatrix.report.records import ReportedPart, shown_outcome
from tests.report.many import verdict as made

CELLS = [Cell(torch="2.13", exporter="dynamo", opset=opset, ort="1.31") for opset in (18, 20)]
CASES = [CheckKey("op", "cases"), CheckKey("other", "cases")]
PART = ReportedPart(number=2, of=5, cells=79, checks=25, elsewhere=frozenset(CASES[1:]))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A project in which one cell is verified, and the cell of another part is mismatched."""
    paths = Paths(tmp_path)
    outcomes = ("verified", "mismatched")
    for cell, outcome in zip(CELLS, outcomes, strict=True):
        verdict.write(paths.verdict("op", "custom", cell), replace(made("op", cell, outcome), lowering="custom"))
    for key in CASES:
        verdict.write(paths.check_record(*key), verdict.CheckRecord(**key._asdict(), outcome="verified"))
    covered = [paths.verdict("op", "custom", CELLS[0]), *(paths.check_record(*key) for key in CASES)]
    paths.verdict_list.parent.mkdir(parents=True, exist_ok=True)
    paths.verdict_list.write_text("".join(f"{path}\n" for path in covered))
    return paths


def test_each_output_says_which_part_it_is(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    write_report.run(paths, [("op", "custom", CELLS[0])], CASES[:1], part=PART)
    lines = capsys.readouterr().out.splitlines()
    assert "1 cell: 1 verified; 1 check: 1 verified" in lines, "the case of another part counts there"
    assert "shard 2 of 5: 1 of 79 cells, 1 of 25 checks" in lines
    assert "from earlier runs, not asked for in this one: 0 cells: none asked for; 1 check: 1 verified" in lines
    shard = {"number": 2, "of": 5, "cells": 79, "checks": 25}
    assert json.loads(paths.report_data.read_text())["shard"] == shard
    assert paths.report_files[2].read_text().startswith("## opmatrix, shard 2 of 5: 1 cell")
    assert json.dumps(shard, separators=(",", ":")) in paths.report_files[3].read_text()


def test_a_part_without_cells_is_a_success(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    write_report.run(paths, [], CASES[:1], part=PART)
    assert "shard 2 of 5: 0 of 79 cells, 1 of 25 checks" in capsys.readouterr().out
    with pytest.raises(ReportError, match="no operator in ops/"):
        write_report.run(paths, [], CASES[:1])


def test_a_wrong_cell_of_the_part_fails_it(paths: Paths) -> None:
    with pytest.raises(ReportError, match="1 of 1 cell is neither verified"):
        write_report.run(paths, [("op", "custom", CELLS[1])], part=PART)


def test_a_report_by_hand_needs_a_shard_that_ran(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--shard 2/5: no shard ran here\. Run: doit --shard 2/5"):
        own_verdicts(Paths(tmp_path), "2/5")
    with pytest.raises(UsageError, match="--shard '6/5': write which part of how many"):
        own_verdicts(Paths(tmp_path), "6/5")
    assert "--shard" in stages.STAGES["report"][2][0]


@pytest.mark.parametrize(("missing", "shown"), [(True, "not run"), (False, "failed")])
def test_an_export_that_the_shared_cache_lacks_is_not_a_failed_one(missing: bool, shown: str) -> None:
    blocked = verdict.FailedStep(group="export", name="op*", missing=missing)
    found = replace(made("op", CELLS[0], "failed", detail="not run: ..."), blocked_by=blocked)
    assert shown_outcome(found) == shown
