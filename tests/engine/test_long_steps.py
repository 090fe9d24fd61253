"""How far long steps are, where no live line shows it: a line now and then, none for short steps."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest

from opmatrix.engine import progress_reporter
from opmatrix.engine.doit_tasks import StepTask
from opmatrix.engine.progress_reporter import Progress
from opmatrix.project.paths import Paths
from opmatrix.step import Step


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    log = Paths(tmp_path).log("data:a")
    log.parent.mkdir(parents=True)
    return log


def task(name: str) -> StepTask:
    return StepTask(Step(group="data", name=name, command=("data", name)))


def printed(seconds: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines of steps that run one after another, if a line is due every 0.2 s."""
    monkeypatch.setattr(progress_reporter, "EVERY", 0.2)
    monkeypatch.setattr(progress_reporter, "_LONG", 0.02)
    written = io.StringIO()
    reporter = Progress(written, {"failure_verbosity": 0, "show_out": True})
    for name, duration in seconds.items():
        reporter.execute_task(task(name))
        time.sleep(duration)
        reporter.add_success(task(name))
    reporter.complete_run()
    before = written.getvalue()
    time.sleep(0.3)
    assert written.getvalue() == before, "nothing is printed after the end"
    return [line for line in before.splitlines() if "so far" in line]


def test_a_line_now_and_then(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_text("$ python -m opmatrix data a\n# at case one\n# now 3 of 9 cases\nprinted\n# now 4 of 9 ca")
    os.utime(folder, (time.time() + 5, time.time() + 5))
    lines = printed({"a": 0.9, "b": 0.1}, monkeypatch)
    assert 2 <= len(lines) <= 4
    assert set(lines) == {"[0/0] 0s so far data:a: 3 of 9 cases"} or "1s so far" in lines[-1]


def test_short_steps_print_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed({"a": 0.1, "b": 0.1, "c": 0.1}, monkeypatch) == []


def test_the_log_of_an_earlier_run_is_not_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_text("# at case one\n")
    os.utime(folder, (1, 1))
    assert {line.partition("data:a")[2] for line in printed({"a": 0.5}, monkeypatch)} == {""}
