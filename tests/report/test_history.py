"""The history of the last runs, and the seconds of steps, which the page shows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from opmatrix.project.paths import Paths
from opmatrix.records.verdict import Verdict
from opmatrix.report import history
from tests.report.many import cells, checks, verdict

CELLS = [*cells()][:3]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


def verdicts(wrong: int) -> list[Verdict]:
    return [verdict("op", cell, "mismatched" if n < wrong else "verified") for n, cell in enumerate(CELLS)]


def record(paths: Paths, found: Sequence[Verdict], at: float = 0) -> list[dict[str, Any]]:
    return history.record(paths, found, checks(), now=at)


def test_a_run_has_its_results(paths: Paths) -> None:
    (run,) = record(paths, verdicts(1))
    assert run == {
        "time": "1970-01-01T00:00:00Z",
        "cells": {"all": 3, "verified": 2, "mismatched": 1, "failed": 0, "unsupported": 0},
        "checks": {"all": 5, "verified": 2, "mismatched": 0, "failed": 2, "unsupported": 1},
        "operators": {"op": {"cells": 3, "wrong": 1, "tolerance_used": 3.5}},
    }
    assert [json.loads(line) for line in paths.report_history.read_text().splitlines()] == [run]


def test_a_run_with_the_same_results_adds_nothing(paths: Paths) -> None:
    record(paths, verdicts(0))
    before = paths.report_history.read_bytes()
    assert len(record(paths, verdicts(0), at=60)) == 1
    assert paths.report_history.read_bytes() == before
    assert [run["cells"]["mismatched"] for run in record(paths, verdicts(2), at=60)] == [0, 2]


def test_the_last_runs_are_kept(paths: Paths) -> None:
    for n in range(history.KEPT + 3):
        runs = record(paths, verdicts(n % 2), at=n)
    assert len(runs) == history.KEPT == len(paths.report_history.read_text().splitlines())
    assert runs[-1]["time"].endswith(f"{history.KEPT + 2}Z"), "the oldest ones are dropped"


RUN = {
    **{key: {"all": 1, "verified": 1, "mismatched": 0, "failed": 0, "unsupported": 0} for key in ("cells", "checks")},
    "time": "1970-01-01T00:00:00Z",
    "operators": {"op": {"cells": 1, "wrong": 0, "tolerance_used": 0.5}},
}
# The page, and JSON, cannot show these.
DAMAGED: list[dict[str, Any]] = [
    {"time": None}, {"operators": {"op": {}}}, {"operators": {"op": {"wrong": 0, "tolerance_used": math.nan}}},
]  # fmt: skip


@pytest.mark.parametrize(
    "damaged",
    [b"{", b"[]", b"3", b'{"time": "", "cells": {}}', b"\xff\x00", *(json.dumps(RUN | d).encode() for d in DAMAGED)],
)
def test_a_damaged_line_is_left_out(paths: Paths, damaged: bytes) -> None:
    record(paths, verdicts(0))
    paths.report_history.write_bytes(damaged + b"\n" + paths.report_history.read_bytes())
    assert [run["cells"]["mismatched"] for run in record(paths, verdicts(1))] == [0, 1]


def test_seconds_are_by_operator_and_stage(paths: Paths) -> None:
    durations = {"compile:op": 1.5, "compile:gone": 9.0, "report": 1.0, "export:op-custom-agreement@torch2.13": 0.1}
    durations |= {f"verify:op-custom@torch2.13-legacy-opset{opset}-ort1.31": 0.25 for opset in (9, 12)}
    history.write_seconds(paths, durations)
    assert history.seconds(paths, {"op"}) == {"op": {"compile": 1.5, "export": 0.1, "verify": 0.5}}


@pytest.mark.parametrize("content", [None, "", "[]", '{"op": 3}', '{"op": {"verify": null}}'])
def test_without_a_valid_file_there_are_no_seconds(paths: Paths, content: str | None) -> None:
    if content is not None:
        paths.report_seconds.parent.mkdir(parents=True)
        paths.report_seconds.write_text(content)
    assert history.seconds(paths, {"op"}) == {}
