"""What commands share: the next report shows what one of them has written."""

from __future__ import annotations

from pathlib import Path

from opmatrix.commands.base import report_again
from opmatrix.engine.database import Journal
from opmatrix.engine.tasks import REPORT
from opmatrix.project.paths import Paths


def test_the_report_runs_again_and_no_other_step(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    report_again(paths)
    assert not paths.state.exists()
    journal = Journal(str(paths.state), None)
    for step in (REPORT, "compile:a"):
        journal.record(step, key="k", detail={"config": "x"})
    journal.dump()
    report_again(paths)
    after = Journal(str(paths.state), None)
    assert (after.key(REPORT), after.key("compile:a")) == (None, "k")
    assert after.detail(REPORT) == {"config": "x"}, "doit why still compares"
    after.dump()
