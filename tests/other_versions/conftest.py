"""Environments of other versions for the tests of this folder: those of this checkout, made if they are missing.

ONNX Runtime comes from the package index. torch's CPU build does not: OPMATRIX_TORCH_WHEELS names a folder with wheels
of it. Without that folder, a test that needs a missing environment of torch is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from opmatrix.project.paths import Paths
from tests.support.projects import ROOT, Project

Needs = Callable[..., None]
_NO_NETWORK = "pip cannot reach"


@pytest.fixture(scope="session")
def needs() -> Needs:
    """Return the function that makes environments; it skips the test if it cannot make one."""

    def make(*names: str) -> None:
        for name in names:
            if not Paths(ROOT).stamp(name).is_dir():
                _make(name)

    return make


def _make(name: str) -> None:
    variables: Mapping[str, str] = {}
    if name.startswith("torch"):
        if not (wheels := os.environ.get("OPMATRIX_TORCH_WHEELS")):
            pytest.skip(f"{name} is not made, and OPMATRIX_TORCH_WHEELS names no folder with wheels of torch")
        links = f"{os.environ.get('PIP_FIND_LINKS', '')} {wheels}"
        variables = {"OPMATRIX_TORCH_INDEX": "", "PIP_FIND_LINKS": links.strip()}
    command = [sys.executable, "-m", "opmatrix", "environment", name]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode and _NO_NETWORK in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A copy of this project with two operators, and this checkout's environments."""
    made = Project.copy(tmp_path, operators=("group_norm", "nms"))
    (ROOT / ".venv-matrix").mkdir(exist_ok=True)
    (tmp_path / ".venv-matrix").symlink_to(ROOT / ".venv-matrix")
    return made
