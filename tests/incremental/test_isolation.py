"""A step's changes to itself, to the machine or to its process do not reach another step."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.incremental.conftest import Project
from tests.incremental.real import KERNEL, RealProject

pytestmark = [pytest.mark.incremental, pytest.mark.slow]

CELL = "torch2.13-dynamo-opset18-ort1.31"


@pytest.mark.parametrize("server", [None, "onnx"])
@pytest.mark.parametrize("command", ["gobble", "gobble_below"])
def test_a_step_that_allocates_without_limit(project: Project, command: str, server: str | None) -> None:
    """In its own process or in a child process, such as a compiler."""
    project.write("a.txt", "hello")
    step = project.step(
        f"verify:a-custom@{CELL}",
        command,
        "a.txt",
        "build/a.json",
        verdict="build/a.json",
        server=server,
        megabytes=700,
    )
    project.step("data:b", "copy", "a.txt", "build/b", server=server)
    done = project.doit()
    assert done.returncode == 1 and (project.root / "build/b").exists()
    found = json.loads(project.read("build/a.json"))
    assert found["outcome"] == "failed"
    assert found["detail"].startswith("took more than 700 MB of memory and was stopped\nlast words\n")
    assert project.processes() == []
    step["command"] = ["copy", "a.txt", "build/a.json"]
    assert project.doit().returncode == 0


# At 71b51ad8: each wrote until the time limit.
@pytest.mark.parametrize("server", [None, "onnx"])
@pytest.mark.parametrize("how", ["one", "elsewhere", "again", "program", "fork", "without python"])
def test_a_step_that_writes_without_end(project: Project, how: str, server: str | None) -> None:
    project.write("a.txt", "hello")
    step = project.step(
        f"verify:a-custom@{CELL}", "fill", "a.txt", "build/a.json", verdict="build/a.json", server=server, written=50
    )
    step["command"].insert(1, how)
    project.step("data:b", "copy", "a.txt", "build/b", server=server)
    done = project.doit()
    assert done.returncode == 1 and (project.root / "build/b").exists()
    found = json.loads(project.read("build/a.json"))
    assert found["detail"].startswith("wrote more than 50 MB and was stopped\nlast words\n")
    assert "The limit is `written` in [tool.opmatrix.limits] of pyproject.toml, in MB" in found["detail"]
    assert project.processes() == []


# At 71b51ad8: each but the threads was stopped, since it took more than 700 MB.
@pytest.mark.parametrize("how", ["forks", "daemons", "sessions", "a mapped file", "shared memory", "threads"])
def test_processes_that_share_memory_are_not_counted_each(project: Project, how: str) -> None:
    project.write("a.txt", "hello")
    step = project.step("verify:a", "share", "a.txt", "build/a.json", megabytes=700)
    step["command"].insert(1, how)
    done = project.doit()
    assert done.returncode == 0, done.stdout
    assert project.processes() == []


def test_a_step_that_prints_without_end(project: Project) -> None:
    project.write("a.txt", "hello")
    project.step(f"verify:a-custom@{CELL}", "flood", "a.txt", "build/a.json", verdict="build/a.json")
    done = project.doit()
    assert done.returncode == 1 and project.processes() == []
    found = json.loads(project.read("build/a.json"))
    assert found["detail"].startswith("printed more than 100 MB and was stopped, at case seed\nflood")
    assert len(done.stdout) < 200_000
    assert sum(path.stat().st_size for path in (project.root / "build").rglob("*") if path.is_file()) < 4_000_000


@pytest.mark.parametrize("server", [None, "onnx"])
def test_changes_of_a_step_do_not_reach_the_next(project: Project, server: str | None) -> None:
    """Registrations, environment, working directory, umask, limits, handlers, priority, import path."""
    project.write("a.txt", "hello")
    project.step("data:1", "inspect", "a.txt", "build/1", server=server)
    project.step("data:2", "pollute", "a.txt", "build/2", server=server)
    project.step("data:3", "inspect", "a.txt", "build/3", server=server)
    done = project.doit()
    assert done.returncode == 0, done.stdout
    assert project.read("build/1") == project.read("build/3")
    assert "('OMP_NUM_THREADS', '1')" in project.read("build/1"), "kernel threads take from the budget of -n"


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
def test_the_debug_line_of_a_crash_works(real: RealProject) -> None:
    assert real.run().returncode == 0
    original = (real.root / KERNEL).read_text()
    real.replace(KERNEL, "TensorView<T> y) {\n", "TensorView<T> y) {\n  *static_cast<volatile int*>(nullptr) = 1;\n")
    try:
        real.run("verify:*-custom*", "report")
        detail = next(r["detail"] for n, r in real.records().items() if "custom" in n)
        line = re.search(r"^Debug: (.*) && gdb --args (.*)$", detail, flags=re.MULTILINE)
        assert line, detail
        build, crash = (shlex.split(part.replace("python", sys.executable, 1)) for part in line.groups())
        assert subprocess.run(build, cwd=real.root).returncode == 0
        assert subprocess.run(crash, cwd=real.root, capture_output=True).returncode == -11
        if shutil.which("gdb"):
            batch = ["gdb", "-batch", "-ex", "run", "-ex", "bt", "--args", *crash]
            output = subprocess.run(batch, cwd=real.root, capture_output=True, text=True).stdout
            assert "SIGSEGV" in output and "kernel.h:" in output, output
    finally:
        (real.root / KERNEL).write_text(original)
