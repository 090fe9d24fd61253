"""Each command of README and of the table in docs/overview.md works, in their order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

README = (ROOT / "README.md").read_text()
OVERVIEW = (ROOT / "docs/overview.md").read_text()


def commands() -> list[str]:
    """Return the commands, except the tests and the benchmark, which would run this test again."""
    table = re.findall(r"^\| `\./run ([^`]+)` \|", OVERVIEW, flags=re.MULTILINE)
    blocks = re.findall(r"^\$ \./run (.+)$", README, flags=re.MULTILINE)
    return [c for c in dict.fromkeys([*blocks, *table]) if not c.startswith(("tox", "python benchmarks"))]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.copy(tmp_path_factory.mktemp("readme"), seconds=300)


@pytest.mark.timeout(3600)
def test_the_commands_work(project: Project) -> None:
    """One test, because later commands need what earlier ones built. pytest-xdist 3.8 keeps no group of tests in one
    process with pytest 9.2."""
    known = {"doit": [sys.executable, "-m", "doit"], "python": [sys.executable]}
    for command in commands():
        program, *arguments = shlex.split(command)
        done = subprocess.run([*known[program], *arguments], cwd=project.root, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
