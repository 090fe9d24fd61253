"""The comparison of a report with the previous one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import ReportError
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import Outcome
from opmatrix.report import write_report
from opmatrix.report.markdown import compare, kinds
from opmatrix.report.report_json import Environments, document, is_wrong, parse, same, text
from tests.report.many import ENVIRONMENTS, RUNTIMES, cells, records
from tests.report.many import verdict as make

FIVE = list(cells())[:5]
OUTCOMES: tuple[Outcome, ...] = ("verified", "mismatched", "failed", "unsupported")


def made(*outcomes: Outcome | None, environments: Environments = ENVIRONMENTS) -> dict[str, Any]:
    """Return a report of as many cells; None for a missing one."""
    there = [(cell, outcome) for cell, outcome in zip(FIVE, outcomes, strict=False) if outcome]
    return document([make("op", c, o, detail="why") for c, o in there], environments)


@pytest.mark.parametrize("before", [*OUTCOMES, None])
@pytest.mark.parametrize("now", [*OUTCOMES, None])
def test_every_pair_of_outcomes_has_one_kind(before: Outcome | None, now: Outcome | None) -> None:
    right, wrong = ("verified", "unsupported"), ("mismatched", "failed")
    expected = (
        None if before == now
        else "new" if before is None
        else "gone" if now is None
        else "broken" if before in right and now in wrong
        else "fixed" if before in wrong and now in right
        else "changed"
    )  # fmt: skip
    changes = compare(made(now), made(before))
    entry = {"name": f"op-custom@{FIVE[0]}", "before": before, "now": now}
    assert {k: v for k, v in changes.items() if v} == ({expected: [entry]} if expected else {})


def test_the_kinds_of_existing_cells() -> None:
    changes = compare(made("failed", None, "verified"), made("verified", "verified"))
    assert kinds(changes) == {f"op-custom@{FIVE[0]}": ("broken", "verified"), f"op-custom@{FIVE[2]}": ("new", None)}
    assert kinds(None) == {}


def test_changed_versions_are_reported() -> None:
    now = {"main": {"torch": "2.13.0", "new": "1"}, "torch2.9": {"onnx": "1.22"}, "ort1.18": {"numpy": "2.0"}}
    before = {"main": {"torch": "2.9.1"}, "torch2.9": {"onnx": "1.22"}, "ort1.16": {"numpy": "1.26"}}
    changes = compare(made("verified", environments=now), made("verified", environments=before))
    assert changes["versions"] == {"main": {"torch": ["2.9.1", "2.13.0"], "new": [None, "1"]}}


def test_cells_of_many_versions_are_distinguished() -> None:
    whole = document(records(2), ENVIRONMENTS)
    before = document([r for r in records(2) if r.cell.ort != RUNTIMES[0]], ENVIRONMENTS)
    changes = compare(whole, before)
    assert len(changes["new"]) == sum(r.cell.ort == RUNTIMES[0] for r in records(2)) > 50
    assert not changes["broken"] and not changes["gone"]


def test_the_text_has_a_line_for_each_cell_and_the_same_changes() -> None:
    whole = document(records(2), ENVIRONMENTS)
    written = text(whole)
    assert json.loads(written) == whole
    assert sum(line.startswith('{"op"') for line in written.splitlines()) == len(whole["cells"])
    assert json.loads(text(document([], ENVIRONMENTS)))["cells"] == []


def test_a_document_is_equal_after_it_is_written_and_read() -> None:
    whole = document(records(1), ENVIRONMENTS)
    found = parse(text(whole | {"changes": {"broken": []}}))
    assert found and same(found, whole)
    assert not same(found, document(records(2), ENVIRONMENTS))


def test_a_report_with_the_names_of_the_previous_format_is_compared() -> None:
    assert parse('{"schema": 2, "environments": {}, "cells": []}') is not None


@pytest.mark.parametrize(
    "damaged",
    ["", "{", "[]", "{}", '{"schema": 1, "versions": {}, "cells": []}',
     '{"schema": 5, "environments": {}, "cells": []}', '{"schema": 4, "environments": {}, "cells": []}',
     '{"schema": 3, "environments": {}, "cells": [{}]}',
     '{"schema": 3, "environments": {"main": 1}, "cells": []}', '{"schema": 3, "environments": {}, "cells": {}}'],
)  # fmt: skip
def test_an_invalid_report_is_none(damaged: str) -> None:
    assert parse(damaged) is None


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_first_lines_of_a_file_show_whether_a_cell_is_wrong(outcome: Outcome, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert not is_wrong(path)
    path.write_text(text(made("verified", outcome, "unsupported")))
    assert is_wrong(path) == (outcome in ("mismatched", "failed"))


# The files that the stage keeps.


class Runs:
    """A project of three cells, whose report is made repeatedly."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)

    def __call__(self, *outcomes: Outcome) -> dict[str, Any] | None:
        for cell, outcome in zip(FIVE, outcomes, strict=False):
            verdict.write(self.paths.verdict("op", "custom", cell), make("op", cell, outcome, detail="why"))
        try:
            write_report.run(self.paths, [("op", "custom", cell) for cell in FIVE[: len(outcomes)]])
        except ReportError:
            assert {"failed", "mismatched"} & {*outcomes}
        found: dict[str, Any] | None = json.loads(self.paths.report_data.read_text())["changes"]
        return found


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def counts(changes: dict[str, Any] | None) -> dict[str, int] | None:
    return None if changes is None else {kind: len(found) for kind, found in changes.items() if found}


def test_the_first_run_is_compared_with_none(runs: Runs) -> None:
    assert runs("verified", "verified") is None
    assert not runs.paths.previous_report.exists()


def test_each_run_is_compared_with_the_previous_one(runs: Runs) -> None:
    runs("verified", "verified")
    assert counts(runs("verified", "failed")) == {"broken": 1}
    assert counts(runs("failed", "failed")) == {"broken": 1}
    assert counts(runs("verified", "failed", "failed")) == {"fixed": 1, "new": 1}
    assert counts(runs("verified")) == {"gone": 2}


def test_a_report_that_is_made_again_has_the_same_changes(runs: Runs) -> None:
    runs("verified", "verified")
    runs("verified", "failed")
    written = {path: path.read_bytes() for path in (*runs.paths.report_files, runs.paths.previous_report)}
    assert counts(runs("verified", "failed")) == {"broken": 1}
    assert {path: path.read_bytes() for path in written} == written


def test_the_first_run_is_compared_with_a_given_report(runs: Runs) -> None:
    runs("verified", "verified")
    runs.paths.report_data.rename(runs.paths.previous_report)
    assert counts(runs("failed", "verified")) == {"broken": 1}


def test_a_damaged_report_is_not_kept(runs: Runs) -> None:
    runs("verified")
    runs("failed")
    runs.paths.report_data.write_text("{")
    assert counts(runs("mismatched")) == {"broken": 1}, "compared with the first, which is still there"
    runs.paths.report_data.write_text("{")
    runs.paths.previous_report.write_bytes(b"\xff")
    assert runs("mismatched") is None


def test_a_report_of_an_older_format_is_compared(runs: Runs) -> None:
    runs("verified")
    found = json.loads(runs.paths.report_data.read_text())
    del found["changes"]
    runs.paths.report_data.write_text(json.dumps(found, indent=1))
    assert counts(runs("failed")) == {"broken": 1}
