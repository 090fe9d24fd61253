"""Each command of README works, in the order of the page."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT
from tests.support.projects import Project
from tests.support.quick_start import fill_in

# In one process, because later commands need what earlier ones built.
pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.xdist_group("readme")]

README = (ROOT / "README.md").read_text()


def commands() -> list[str]:
    """Return the commands of README, except the tests and the benchmark, which would run this test again."""
    table = re.findall(r"^\| `\./run ([^`]+)` \|", README, flags=re.MULTILINE)
    blocks = re.findall(r"^\$ \./run (.+)$", README, flags=re.MULTILINE)
    return [c for c in dict.fromkeys([*blocks, *table]) if not c.startswith(("tox", "python benchmarks"))]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.copy(tmp_path_factory.mktemp("readme"), seconds=300)


@pytest.mark.parametrize("command", commands())
def test_a_command_works(project: Project, command: str) -> None:
    program, *arguments = shlex.split(command)
    known = {"doit": [sys.executable, "-m", "doit"], "python": [sys.executable]}
    done = subprocess.run([*known[program], *arguments], cwd=project.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    if arguments[:1] == ["new"]:
        fill_in(project.root)
