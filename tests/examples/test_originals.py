"""examples/originals: an installed opmatrix verifies a copy of it; the nodes of the originals' exporters run in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from opmatrix.project.paths import Paths
from tests.support.emulated_levels import differences, with_levels
from tests.support.projects import ROOT, give_an_hour
from tests.wheel.shipping import Environment

EXAMPLE = ROOT / "examples/originals"
MADE = shutil.ignore_patterns("build", "__pycache__", ".tox", ".venv*", ".hypothesis", ".doit*", "*.egg-info")
OPERATORS = sorted(path.parent.name for path in EXAMPLE.glob("ops/*/spec.py"))
NODES = sorted(path.relative_to(EXAMPLE) for path in EXAMPLE.glob("ops/*/*.onnx"))

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


def doit(opmatrix: Environment, project: Path, *arguments: str) -> str:
    """Run `doit` of the installed opmatrix in a project, which must succeed; return its output."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [str(opmatrix.python), "-m", "doit", *arguments]
    done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(opmatrix: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the folder in which `doit` has run."""
    copy = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("example") / "originals", ignore=MADE)
    give_an_hour(copy)
    assert "TODO" not in doit(opmatrix, copy)
    return copy


def test_an_operator_is_verified_and_the_node_of_its_original_runs(opmatrix: Environment, tmp_path: Path) -> None:
    """What each change runs of this folder."""
    copy = shutil.copytree(EXAMPLE, tmp_path / "originals", ignore=MADE)
    doit(opmatrix, copy, "opsets=18", "quant")
    verdicts = [json.loads(path.read_text()) for path in copy.glob("build/verify/quant/*/*.json")]
    assert [verdict["outcome"] for verdict in verdicts] == ["verified"] * 2
    assert "OK: " in doit(opmatrix, copy, "check", "ops/quant/original.onnx")


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_cell_is_verified(operator: str, project: Path) -> None:
    cells = json.loads((project / "build/report/report.json").read_text())["cells"]
    own = [c for c in cells if c["op"] == operator]
    assert own
    assert [c for c in own if c["outcome"] != "verified"] == []


@pytest.mark.parametrize("operator", with_levels(EXAMPLE))
def test_a_kernel_at_v4(operator: str, project: Path, tmp_path: Path) -> None:
    assert differences(Paths(project), tmp_path, operator) == []


@pytest.mark.parametrize("node", NODES, ids=str)
def test_the_original_node_runs(node: Path, project: Path, opmatrix: Environment) -> None:
    assert "OK: " in doit(opmatrix, project, "check", str(node))


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_has_the_node_of_its_original(operator: str) -> None:
    specs = [path.read_text() for path in EXAMPLE.glob("ops/*/spec.py")]
    computes_a_gradient = any(f'backward="{operator}"' in spec for spec in specs)  # which no exporter writes
    assert bool([node for node in NODES if node.parts[1] == operator]) != computes_a_gradient


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_page_lists_each_operator(operator: str) -> None:
    assert f"[`{operator}`](ops/{operator}/README.md)" in (EXAMPLE / "README.md").read_text()
