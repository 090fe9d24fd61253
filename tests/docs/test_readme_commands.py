"""Each command of README and of the table in docs/overview.md works, in their order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

README = (ROOT / "README.md").read_text()
OVERVIEW = (ROOT / "docs/overview.md").read_text()


def commands() -> list[str]:
    """Return the commands, except the tests and the benchmark, which would run this test again, and `doit watch`, which
    runs until Ctrl-C: tests/incremental/test_watch.py."""
    table = re.findall(r"^\| `\./run ([^`]+)` \|", OVERVIEW, flags=re.MULTILINE)
    blocks = re.findall(r"^\$ \./run (.+)$", README, flags=re.MULTILINE)
    return [c for c in dict.fromkeys([*blocks, *table]) if not c.startswith(("tox", "python benchmarks", "doit watch"))]


# Commands that take minutes, and the test or page that runs each of them on a smaller operator, or the same one: a part
# of its text. Here, `tox run -e deep` runs them.
ELSEWHERE = {
    "doit probe": ("docs/how-to/new-torch-version.md", "$ ./run doit probe\n"),
    "doit sanitize:group_norm": ("tests/operators/test_sanitize.py", '"opsets=18", f"sanitize:{name}"'),
    "doit compat group_norm": ("docs/how-to/beyond-eager.md", "$ ./run doit compat squares\n"),
    "doit bench --row '8x512*' group_norm": ("tests/addons/bench/test_run.py", '"--budget", "0.3", "--threads", "1"'),
    "doit mutate group_norm": ("tests/addons/mutate/test_run_mutants.py", '"mutate", "--count", "6", NAME'),
    "doit dist": ("docs/ship.md", "$ ./run doit dist\n"),
}


def run(project: Project, without: Iterable[str] = ()) -> None:
    """Run the commands in their order, because later ones need what earlier ones built."""
    known = {"doit": [sys.executable, "-m", "doit"], "python": [sys.executable]}
    for command in commands():
        if command in without:
            continue
        program, *arguments = shlex.split(command)
        done = subprocess.run([*known[program], *arguments], cwd=project.root, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.copy(tmp_path)


def test_the_commands_work(project: Project) -> None:
    run(project, without=ELSEWHERE)


@pytest.mark.deep
def test_all_commands_work_one_after_the_other(project: Project) -> None:
    run(project)


@pytest.mark.parametrize("command", ELSEWHERE)
def test_a_command_that_is_left_out_runs_elsewhere(command: str) -> None:
    path, text = ELSEWHERE[command]
    assert command in commands() and text in (ROOT / path).read_text()
