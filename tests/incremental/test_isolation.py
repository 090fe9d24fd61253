"""A step's changes to itself, to the machine or to its process do not reach another step."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.incremental.conftest import Project
from tests.incremental.real import KERNEL, RealProject
from tests.support.projects import edited

pytestmark = [pytest.mark.incremental, pytest.mark.slow]

CELL = "torch2.13-dynamo-opset18-ort1.31"


def failure(project: Project, *command: str, **fields: Any) -> str:
    """Run doit with a step that must be stopped while another succeeds; return what the verdict says of it."""
    step = project.step(f"verify:a-custom@{CELL}", "", "a.txt", "build/a.json", verdict="build/a.json", **fields)
    step["command"][:1] = command
    project.step("data:b", "copy", "a.txt", "build/b", server=step.get("server"))
    done = project.doit()
    assert done.returncode == 1 and len(done.stdout) < 200_000 and (project.root / "build/b").exists()
    assert project.processes() == []
    found = project.json("build/a.json")
    assert found["outcome"] == "failed"
    return str(found["detail"])


@pytest.mark.parametrize("server", [None, "onnx"])
@pytest.mark.parametrize("command", ["gobble", "gobble_below"])
def test_a_step_that_allocates_without_limit(project: Project, command: str, server: str | None) -> None:
    """In its own process or in a child process, such as a compiler."""
    detail = failure(project, command, server=server, megabytes=700)
    assert detail.startswith("took more than 700 MB of memory and was stopped\nlast words\n")
    project.set_command("copy", of=0)
    assert project.doit().returncode == 0


# At 71b51ad8: each wrote until the time limit.
@pytest.mark.parametrize("server", [None, "onnx"])
@pytest.mark.parametrize("how", ["one", "elsewhere", "again", "program", "fork", "without python"])
def test_a_step_that_writes_without_end(project: Project, how: str, server: str | None) -> None:
    detail = failure(project, "fill", how, server=server, written=50)
    assert detail.startswith("wrote more than 50 MB and was stopped\nlast words\n")
    assert "The limit is `written` in [tool.opmatrix.limits] of pyproject.toml, in MB" in detail


def test_a_step_that_prints_without_end(project: Project) -> None:
    detail = failure(project, "flood")
    assert detail.startswith("printed more than 100 MB and was stopped, at case seed\nflood")
    assert sum(path.stat().st_size for path in (project.root / "build").rglob("*") if path.is_file()) < 4_000_000


# At 71b51ad8: each but the threads was stopped, since it took more than 700 MB.
@pytest.mark.parametrize("how", ["forks", "daemons", "sessions", "a mapped file", "shared memory", "threads"])
def test_processes_that_share_memory_are_not_counted_each(project: Project, how: str) -> None:
    step = project.step("verify:a", "share", "a.txt", "build/a.json", megabytes=700)
    step["command"].insert(1, how)
    done = project.doit()
    assert done.returncode == 0, done.stdout
    assert project.processes() == []


@pytest.mark.parametrize("server", [None, "onnx"])
def test_changes_of_a_step_do_not_reach_the_next(project: Project, server: str | None) -> None:
    """Registrations, environment, working directory, umask, limits, handlers, priority, import path."""
    for number, command in enumerate(("inspect", "pollute", "inspect"), 1):
        project.step(f"data:{number}", command, "a.txt", f"build/{number}", server=server)
    done = project.doit()
    assert done.returncode == 0, done.stdout
    assert project.read("build/1") == project.read("build/3")
    assert "('OMP_NUM_THREADS', '1')" in project.read("build/1"), "kernel threads take from the budget of -n"


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
def test_the_debug_line_of_a_crash_works(real: RealProject) -> None:
    assert real.run().returncode == 0
    crash = "TensorView<T> y) {\n"
    with edited(real.root / KERNEL, crash, f"{crash}  *static_cast<volatile int*>(nullptr) = 1;\n"):
        real.run("verify:*-custom*", "report")
        detail = next(r["detail"] for n, r in real.records().items() if "custom" in n)
        line = re.search(r"^Debug: (.*) && gdb --args (.*)$", detail, flags=re.MULTILINE)
        assert line, detail
        build, replay = (shlex.split(part.replace("python", sys.executable, 1)) for part in line.groups())
        assert subprocess.run(build, cwd=real.root).returncode == 0
        assert subprocess.run(replay, cwd=real.root, capture_output=True).returncode == -11
        if shutil.which("gdb"):
            batch = ["gdb", "-batch", "-ex", "run", "-ex", "bt", "--args", *replay]
            output = subprocess.run(batch, cwd=real.root, capture_output=True, text=True).stdout
            assert "SIGSEGV" in output and "kernel.h:" in output, output
