"""The verdict of a run in at most nine lines: colours on a terminal alone, notes where there is room."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from opmatrix.basics.errors import Cause
from opmatrix.engine.reporters import LINES, Brief
from opmatrix.engine.step_failure import StepFailed
from opmatrix.engine.tasks import StepTask
from opmatrix.records.step import Step


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)


def finished(stream: io.StringIO, *, failures: int, notes: int = 0) -> str:
    """Return what a run of one step prints, with failures in as many operators."""
    tasks = {}
    for n in range(max(1, failures)):
        step = Step(group="compile", name=f"op{n}", command=("compile", f"op{n}"), operator=f"op{n}")
        tasks[f"compile:op{n}"] = StepTask(step)
    reporter = Brief(stream, {"failure_verbosity": 0, "show_out": True})
    reporter.initialize(tasks, [*tasks])
    for name, task in tasks.items():
        told = Cause(sentence=f"{name} is wrong " * 20, file=f"native/{name}/kernel.h", line=4)
        if failures:
            reporter.add_failure(task, StepFailed(task.step, summary="failed", output="wrong", told=told))
        else:
            reporter.add_success(task)
    for n in range(notes):
        reporter.note(f"note {n}, " * 20)
    reporter.complete_run()
    return stream.getvalue()


@pytest.mark.parametrize("failures", [0, 1, 2, 40])
@pytest.mark.parametrize("notes", [0, 1, 20])
def test_it_has_at_most_nine_lines_of_80_columns(failures: int, notes: int) -> None:
    lines = finished(io.StringIO(), failures=failures, notes=notes).splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= 80, lines
    assert lines[-1].startswith("OK in ") is (failures == 0)
    assert sum(line.startswith("  Replay: python -m opmatrix compile op0") for line in lines) == min(failures, 1)
    assert failures or notes == 0 or lines[0].startswith("note 0, note 0, ")


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_colours_are_for_terminals(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    for failures, word in ((0, "\x1b[32mOK\x1b[0m in "), (1, "\x1b[31mFAILED\x1b[0m native/compile:op0/kernel.h:4\n")):
        assert (word in finished(stream(), failures=failures)) is (stream is Terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in finished(stream(), failures=1)
