"""What people, logs and programs see of a run; and the number of cores that it uses."""

from __future__ import annotations

import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.incremental.conftest import REPOSITORY, Project
from tests.support.projects import Project as Copied

pytestmark = pytest.mark.incremental


def events(project: Project, *arguments: str) -> list[dict[str, Any]]:
    done = project.doit("-r", "jsonl", *arguments)
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def without_seconds(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in event.items() if k not in ("seconds", "cpu", "memory")} for event in found]


DIFFERS = "the kernel differs at (0, 17): expected 0.1243, got 0.1250"


def test_json_lines(project: Project) -> None:
    project.step("codegen:a", "upper", "a.txt", "build/a.g")
    project.step("data:a", "nap", "a.txt", "build/a.pb")
    project.step("compile:a", "say", "build/a.g", "build/a.so")
    project.step("verify:a", "copy", "build/a.so", "build/a.json")
    found = events(project)
    failed = "failed with exit code 10"
    assert without_seconds(found) == [
        {"event": "begin", "steps": 4},
        {"event": "start", "step": "codegen:a", "reason": "never ran"},
        {"event": "end", "step": "codegen:a", "outcome": "succeeded"},
        {"event": "start", "step": "compile:a", "reason": "never ran"},
        {"event": "end", "step": "compile:a", "outcome": "failed", "reason": failed},
        {"event": "start", "step": "data:a", "reason": "never ran"},
        {"event": "end", "step": "data:a", "outcome": "succeeded"},
        {"event": "end", "step": "verify:a", "outcome": "blocked", "reason": f"not run: compile:a failed: {DIFFERS}"},
        {"event": "finish"},
    ]
    napped = next(e for e in found if e.get("step") == "data:a" and e["event"] == "end")
    assert found[-1]["seconds"] >= napped["seconds"] and napped["cpu"] >= 0
    assert napped["seconds"] - napped["cpu"] > 0.098, "it slept 0.1 s"
    assert all(("cpu" in e) == ("memory" in e) == (e["outcome"] != "blocked") for e in found if e["event"] == "end")


def test_json_lines_report_the_cost_of_a_server(project: Project) -> None:
    project.step("data:a", "burn", "a.txt", "build/a.pb", server="onnx")
    _, _, server, end, _ = events(project)
    assert (server["event"], server["server"]) == ("server", "onnx")
    assert server["cpu"] > 0 and 0 < server["seconds"] <= end["seconds"]
    assert end["cpu"] >= 0.3, "what the step started counts, and so does what it did itself"


def test_json_lines_report_up_to_date_requested_and_ignored_steps_and_notes(project: Project) -> None:
    project.step("codegen:a", "copy", "a.txt", "build/a.g")
    project.doit()
    assert without_seconds(events(project)) == [
        {"event": "begin", "steps": 1},
        {"event": "end", "step": "codegen:a", "outcome": "up-to-date"},
        {"event": "finish"},
    ]
    assert '"outcome": "up-to-date", "seconds": 0.0}' in project.doit("-r", "jsonl").stdout, "not -0.0"
    assert {"event": "start", "step": "codegen:a", "reason": "asked for"} in events(project, "-a")
    project.doit("ignore", "codegen:a")
    assert {"event": "end", "step": "codegen:a", "outcome": "ignored", "seconds": 0.0} in events(project)
    project.step("codegen:b", "edit", "a.txt", "build/b.g")
    note = "codegen:b: a.txt was written while the step ran: it runs again next time"
    assert {"event": "note", "reason": note} in events(project)


def test_each_run_of_its_steps_reports_a_placeholder(project: Project) -> None:
    project.write("ops/a/reference.py", "# TODO\n")
    project.step("codegen:a", "copy", "a.txt", "build/a.g")
    project.step("codegen:b", "copy", "a.txt", "build/b.g")
    said = "1 TODO left (first: ops/a/reference.py:1); it is a placeholder"
    assert [line for line in project.doit().stdout.splitlines() if "placeholder" in line] == [f"a: {said}"]
    assert "placeholder" not in project.doit().stdout
    assert "placeholder" not in project.doit("-a", "codegen:b").stdout


def test_the_page_on_events_describes_every_event(project: Project) -> None:
    page = (REPOSITORY / "docs/how-to/continuous-integration.md").read_text()
    text = (REPOSITORY / "pipeline/opmatrix/engine/reporters.py").read_text()
    events = ("begin", "start", "server", "end", "note", "finish")
    for word in (*events, "succeeded", "failed", "blocked", "up-to-date", "ignored"):
        assert f'"{word}"' in text and f"`{word}`" in page


@pytest.mark.parametrize("reporter", ["console", "zero", "json"])
def test_reporters_of_doit_still_work(project: Project, reporter: str) -> None:
    project.step("codegen:a", "edit", "a.txt", "build/a.g")
    done = project.doit("-r", reporter)
    assert done.returncode == 0 and "Traceback" not in done.stderr + done.stdout


def test_the_live_line_in_a_terminal(project: Project) -> None:
    """It shows the number of steps, elapsed time, remaining time at most, and the current step, and below it how far a
    long step is; then it disappears."""
    for i, command in enumerate(("count", "slow", "copy")):
        project.step(f"data:{i}", command, "a.txt", f"build/{i}")
    project._write_steps()
    environment = project._environment({"TERM": "xterm", "COLUMNS": "120"})
    for usual, left in (("", ""), (" of about 30:00", "at most 30:00 left  ")):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "doit", "-n", "2"], cwd=project.root, env=environment, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        long = rf"data:0 \d+:\d\d{usual}: 5 of 10 parts, about \d+:\d\d left"
        awaited = (left + "data:0 and 1 more", "/3", r"\d:\d\d:\d\d", long)
        shown = b""
        with suppress(OSError):  # EIO: the end
            while True:
                shown += os.read(ours, 1 << 16)
                if all(re.search(pattern, shown.decode(errors="replace")) for pattern in awaited):
                    project.write("go", "")
        os.close(ours)
        assert process.wait() == 0, shown
        (project.root / "go").unlink()
        project.write("a.txt", "bye")
        with closing(sqlite3.connect(project.root / "build/state.db")) as state, state:
            state.execute("update duration set seconds = case name when 'data:0' then 1800 else 900 end")


def test_no_more_cores_than_requested(project: Project) -> None:
    """With 6: a compile step may start 3 processes if cores are free, and other steps get the rest."""
    for i in range(3):
        for group, target in (("compile", f"build/c{i}"), ("data", f"build/d{i}")):
            project.step(f"{group}:{i}", "core", "a.txt", target)["command"].append("6")
    assert project.doit("-n", "6").returncode == 0, "free cores are used"
    taken = [*map(int, project.read("cores").splitlines())]
    assert max(accumulate(taken)) <= 6
    assert max(taken) == 3


# The first two steps end when six others wait for a core, and further ones when the second of the chain does.
WAITS = """
from contextlib import contextmanager
from opmatrix.engine.step_runner import Cores
asked, granted, take, CHAIN = set(), [], Cores.take, ("codegen:a", "compile:a")

@contextmanager
def held(cores, task):
    asked.add(task.name)
    with take(cores, task) as taken:
        granted.append(task.name)
        Path("granted").write_text(" ".join(granted))
        yield taken
        while True:
            first = task.name in granted[:2]
            if len(cores._waiting) >= 6 if first else task.name in CHAIN or "compile:a" in asked: break
            time.sleep(0.01)

Cores.take = held
"""


def test_the_longest_path_runs_first_once_all_cores_are_busy(project: Project) -> None:
    """Planned last, a chain would otherwise end last."""
    project.write("fake.py", project.read("fake.py") + WAITS)
    for i in range(8):
        project.step(f"data:{i}", "nap", "a.txt", f"build/d{i}")
    project.step("codegen:a", "nap", "a.txt", "build/a.g")
    project.step("compile:a", "nap", "build/a.g", "build/a.so")
    assert project.doit("-n", "2").returncode == 0
    ran = project.read("granted").split()
    assert len(ran) == 10 and ran.index("codegen:a") <= 2 and ran.index("compile:a") <= 5


def test_one_core_by_default_and_plain_lines_in_a_log(project: Project) -> None:
    project.step("compile:a", "core", "a.txt", "build/a")
    (line, *_) = project.doit().stdout.splitlines()
    assert re.fullmatch(r"\[1/1\] \d+\.\ds compile:a", line)
    assert project.read("cores").split()[0] == "1"


def test_ninja_gets_its_number_of_cores(tmp_path: Path) -> None:
    real = Copied.copy(tmp_path, operators=("custom_op_one",))
    assert real.doit("compile").returncode == 0
    assert " -j 1 -C " in (tmp_path / "build/log/compile/custom_op_one.log").read_text()
