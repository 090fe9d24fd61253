"""How far long steps are, where no live line shows it: a line now and then, none for short steps."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.engine import progress_reporter
from opmatrix.engine.forecast import Expected
from opmatrix.engine.progress_reporter import Progress
from opmatrix.engine.tasks import StepTask
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    log = Paths(tmp_path).log("data:a")
    log.parent.mkdir(parents=True)
    return log


def task(name: str) -> StepTask:
    return StepTask(Step(group="data", name=name, command=("data", name)))


def printed(seconds: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines of steps that run one after another. Time passes only where the thread that prints waits, which
    is this one here."""
    now, written = [100.0], io.StringIO()
    monkeypatch.setattr(progress_reporter, "time", SimpleNamespace(monotonic=lambda: now[0]))
    reporter = Progress(written, {"failure_verbosity": 0, "show_out": True})
    reporter._lines = threading.Thread()  # which does not start

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

    steps = run()
    next(steps)
    monkeypatch.setattr(reporter._ended_all, "wait", wait)
    reporter._print_long_steps()
    assert written.getvalue().endswith("0 steps, all up to date\n"), "nothing is printed after the end"
    return [line for line in written.getvalue().splitlines() if "so far" in line]


def test_a_line_now_and_then(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_text("$ python -m opmatrix data a\n# at case one\n# now 3 of 9 cases\nprinted\n# now 4 of 9 ca")
    os.utime(folder, (time.time() + 5, time.time() + 5))
    lines = printed({"a": 45, "b": 5}, monkeypatch)
    assert lines == [f"[0/0] {seconds}s so far data:a: 3 of 9 cases" for seconds in (10, 20, 30, 40)]


def test_the_live_line_shows_how_far_long_steps_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_text("# now 3 of 9 cases\n")
    monkeypatch.setattr(progress_reporter, "time", SimpleNamespace(monotonic=lambda: 110.0))
    reporter = Progress(io.StringIO(), {"failure_verbosity": 0, "show_out": True})
    reporter._running = {"data:a": 100.0, "data:b": 108.5}
    for usual, shown in ((None, ""), (30.0, " of about 0:30"), (5.0, "")):
        reporter._expected = Expected({"data:a": usual}, {}, 2) if usual else None
        assert reporter._long_steps() == [f"data:a 0:10{shown}: 3 of 9 cases"]


def test_short_steps_print_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed({"a": 9, "b": 9, "c": 9}, monkeypatch) == []


def test_the_log_of_an_earlier_run_is_not_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_text("# at case one\n")
    os.utime(folder, (1, 1))
    assert {line.partition("data:a")[2] for line in printed({"a": 45}, monkeypatch)} == {""}
