"""Each command of README works, in the order of the page."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from tests.docs.page import Command, Write, parse
from tests.docs.pages import ROOT
from tests.support.projects import Project

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
        fill_in(project)


def fill_in(project: Project) -> None:
    """Fill in the placeholder as docs/quick-start.md does: otherwise the gates say that its cases cannot fail."""
    for step in parse("quick-start.md", (ROOT / "docs/quick-start.md").read_text()).steps:
        if isinstance(step, Write):
            (project.root / step.path).write_text(step.text)
        elif isinstance(step, Command) and step.text.endswith("/spec.py"):
            subprocess.run(step.text, shell=True, cwd=project.root, check=True)
    for path in project.root.glob("*/scale_shift/*"):
        path.write_text(path.read_text().replace("FILL IN", "Filled in"))
