"""What the gradient check prints of a sample that is lacking is printed at the end of the run, although it passed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from opmatrix.engine.progress_reporter import Progress
from opmatrix.engine.tasks import StepTask
from opmatrix.project.paths import Paths
from opmatrix.records.step import CheckKey, Step

NOTE = "mix: gradient: no sample covers bias: its gradient is zero in every sample. Add a case in which it is not"


@pytest.mark.parametrize(("part", "shown"), [("gradient", True), ("kernel", False)])
def test_notes_of_a_gradient_are_printed(
    part: str, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"mix-{part}@torch2.13"
    step = Step(group="register", name=name, command=("register", "mix"), check=CheckKey("mix", part, torch="2.13"))
    log = Paths(tmp_path).log(step.task)
    log.parent.mkdir(parents=True)
    log.write_text(f"register mix\n# at the gradient for case plain\n{NOTE}\n")
    written = io.StringIO()
    reporter = Progress(written, {"failure_verbosity": 0, "show_out": True})
    reporter.add_success(StepTask(step))
    assert NOTE not in written.getvalue()
    reporter.complete_run()
    assert (f"{NOTE}\n" in written.getvalue()) is shown
