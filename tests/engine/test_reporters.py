"""What the reporters print: the brief verdict, the live line, how far long steps are, and notes."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.basics.errors import Cause
from opmatrix.engine import progress_reporter
from opmatrix.engine.forecast import Expected
from opmatrix.engine.progress_reporter import Progress, describe
from opmatrix.engine.reporters import LINES, Brief
from opmatrix.engine.step_failure import StepFailed
from opmatrix.engine.tasks import StepTask
from opmatrix.project.paths import Paths
from opmatrix.records.step import CheckKey, Step

OPTIONS = {"failure_verbosity": 0, "show_out": True}


@pytest.fixture(autouse=True)
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Paths(tmp_path)


def write_log(paths: Paths, task: str, text: str) -> Path:
    log = paths.log(task)
    log.parent.mkdir(parents=True)
    log.write_text(text)
    return log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def brief(stream: io.StringIO, *, failures: int, notes: int = 0) -> str:
    """Return what a brief run of one step prints, with failures in as many operators."""
    steps = [Step(group="compile", name=f"op{n}", command=("compile", f"op{n}"), operator=f"op{n}")
             for n in range(max(1, failures))]  # fmt: skip
    tasks = {step.task: StepTask(step) for step in steps}
    reporter = Brief(stream, OPTIONS)
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
def test_a_brief_verdict_has_at_most_nine_lines_of_80_columns(failures: int, notes: int) -> None:
    lines = brief(io.StringIO(), failures=failures, notes=notes).splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= 80, lines
    assert lines[-1].startswith("OK in ") is (failures == 0)
    assert sum(line.startswith("  Replay: python -m opmatrix compile op0") for line in lines) == min(failures, 1)
    assert failures or notes == 0 or lines[0].startswith("note 0, note 0, ")


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_colours_are_for_terminals(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    for failures, word in ((0, "\x1b[32mOK\x1b[0m in "), (1, "\x1b[31mFAILED\x1b[0m native/compile:op0/kernel.h:4\n")):
        assert (word in brief(stream(), failures=failures)) is (stream is Terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in brief(stream(), failures=1)


def test_the_text_after_the_elapsed_time() -> None:
    assert describe([], left=0) == ""
    assert describe(["compile:a"], left=0.4) == "compile:a"
    assert describe(["compile:a", "data:a"], left=80.2) == "at most 1:20 left  compile:a and 1 more"
    assert describe(["compile:a"], left=80.2, failed=2) == "at most 1:20 left  2 failed  compile:a"


def test_the_remaining_time_is_divided_by_the_cores() -> None:
    expected = Expected({"compile:a": 3.0, "verify:a": 1.0}, {}, 2)
    assert expected.left(set()) == 2
    assert expected.left({"compile:a", "codegen:a"}) == 0.5


def so_far(seconds: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines on long steps, which run one after another. Time passes only where the thread that prints waits,
    which is this one here."""

    def task(name: str) -> StepTask:
        return StepTask(Step(group="data", name=name, command=("data", name)))

    def run() -> Iterator[None]:
        for name, duration in seconds.items():
            reporter.execute_task(task(name))
            ends = now[0] + duration
            while now[0] < ends:
                yield
            reporter.add_success(task(name))
        reporter.execute_task(task("at the end"))
        now[0] += 1000
        reporter.complete_run()
        yield

    def wait(passed: float) -> bool:
        now[0] += passed
        return next(steps, "over") == "over"

    now, written = [100.0], io.StringIO()
    monkeypatch.setattr(progress_reporter, "time", SimpleNamespace(monotonic=lambda: now[0]))
    reporter = Progress(written, OPTIONS)
    reporter._lines = threading.Thread()  # which does not start
    steps = run()
    next(steps)
    monkeypatch.setattr(reporter._ended_all, "wait", wait)
    reporter._print_long_steps()
    assert written.getvalue().endswith("0 steps, all up to date\n"), "nothing is printed after the end"
    return [line for line in written.getvalue().splitlines() if "so far" in line]


def test_a_line_now_and_then(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """None for short steps; the log of an earlier run is not shown."""
    assert so_far({"a": 9, "b": 9, "c": 9}, monkeypatch) == []
    log = write_log(
        paths, "data:a", "$ python -m opmatrix data a\n# at case one\n# now 3 of 9 cases\nx\n# now 4 of 9 ca"
    )
    for written, shown in ((1, ""), (time.time() + 5, ": 3 of 9 cases")):
        os.utime(log, (written, written))
        lines = so_far({"a": 45, "b": 5}, monkeypatch)
        assert lines == [f"[0/0] {seconds}s so far data:a{shown}" for seconds in (10, 20, 30, 40)]


def test_the_live_line_shows_how_far_long_steps_are(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(paths, "data:a", "# now 3 of 9 cases\n")
    monkeypatch.setattr(progress_reporter, "time", SimpleNamespace(monotonic=lambda: 110.0))
    reporter = Progress(io.StringIO(), OPTIONS)
    reporter._running = {"data:a": 100.0, "data:b": 108.5}
    for usual, shown in ((None, ""), (30.0, " of about 0:30"), (5.0, "")):
        reporter._expected = Expected({"data:a": usual}, {}, 2) if usual else None
        assert reporter._long_steps() == [f"data:a 0:10{shown}: 3 of 9 cases"]


NOTE = "mix: gradient: no sample covers bias: its gradient is zero in every sample. Add a case in which it is not"


@pytest.mark.parametrize(("part", "shown"), [("gradient", True), ("kernel", False)])
def test_notes_of_a_gradient_are_printed_at_the_end(part: str, shown: bool, paths: Paths) -> None:
    """Although it passed."""
    check = CheckKey("mix", part, torch="2.13")
    step = Step(group="register", name=f"mix-{part}@torch2.13", command=("register", "mix"), check=check)
    write_log(paths, step.task, f"register mix\n# at the gradient for case plain\n{NOTE}\n")
    written = io.StringIO()
    reporter = Progress(written, OPTIONS)
    reporter.add_success(StepTask(step))
    assert NOTE not in written.getvalue()
    reporter.complete_run()
    assert (f"{NOTE}\n" in written.getvalue()) is shown
