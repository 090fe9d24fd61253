"""examples/borrowed: an installed opmatrix verifies a copy of it and ships a wheel, which a new environment uses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from opmatrix.project.paths import Paths
from tests.support.emulated_levels import differences, with_levels
from tests.support.projects import ROOT, give_an_hour
from tests.wheel.shipping import Environment, other_python

EXAMPLE = ROOT / "examples/borrowed"
TRUTH = Path(__file__).with_name("borrowed_truth.py")
OPERATORS = ("causal_conv1d", "radius_graph", "roi_align")
MADE = shutil.ignore_patterns("build", "__pycache__", ".tox", ".venv*", ".hypothesis", ".doit*", "*.egg-info")

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


@pytest.fixture(scope="module")
def project(opmatrix: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the folder in which `doit` and `doit dist` have run."""
    copy = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("example") / "borrowed", ignore=MADE)
    give_an_hour(copy)
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for command in ((), ("dist",)):
        done = subprocess.run(
            [str(opmatrix.python), "-m", "doit", *command], cwd=copy, env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "TODO" not in done.stdout
    return copy


@pytest.fixture(scope="module")
def fresh(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel of the operators."""
    return environment(project, tmp_path_factory.mktemp("fresh"), behind=Path(sys.executable))


def environment(project: Path, folder: Path, *, behind: Path) -> Environment:
    (wheel,) = (project / "build/dist").iterdir()
    assert wheel.name.startswith("borrowed_ops-0.1.0-py3-none-manylinux_2_")
    return Environment.make(folder, wheel, behind=behind)


def test_an_operator_is_verified(opmatrix: Environment, tmp_path: Path) -> None:
    """What each change runs of this folder."""
    copy = shutil.copytree(EXAMPLE, tmp_path / "borrowed", ignore=MADE)
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [str(opmatrix.python), "-m", "doit", "opsets=18", "radius_graph"]
    done = subprocess.run(command, cwd=copy, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = [json.loads(path.read_text()) for path in copy.glob("build/verify/radius_graph/*/*.json")]
    assert [verdict["outcome"] for verdict in verdicts] == ["verified"] * 2


def test_every_cell_is_verified(project: Path) -> None:
    cells = json.loads((project / "build/report/report.json").read_text())["cells"]
    opsets = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["opmatrix"]["opsets"]
    planned = {(op, way, opset) for op in OPERATORS for way in ("legacy", "dynamo") for opset in opsets[way]}
    assert {(c["op"], c["exporter"], c["opset"]) for c in cells} == planned
    assert [c for c in cells if c["outcome"] != "verified"] == []
    assert len(cells) == len(planned) == 33


@pytest.mark.parametrize("operator", with_levels(EXAMPLE))
def test_a_kernel_at_v4(operator: str, project: Path, tmp_path: Path) -> None:
    assert differences(Paths(project), tmp_path, operator) == []


def test_models_of_a_user_of_the_wheel(fresh: Environment, tmp_path: Path) -> None:
    """Trained, exported by both exporters, run in ONNX Runtime; roi_align's sizes reach the linear layer after it."""
    assert "No module named 'pipeline'" in fresh.run("-c", "import pipeline").stderr
    assert "17 models agree: torch " in fresh.check(EXAMPLE / "model.py", tmp_path)


def test_independent_references_agree(fresh: Environment) -> None:
    said = fresh.check(TRUTH)
    compared = (
        "roi_align: 2 node tests of onnx",
        "torch's conv1d, 72 times",
        "6 tests of torch_cluster",
        "cdist, 144 times",
    )
    assert [words for words in compared if words not in said] == []


@pytest.mark.parametrize("torch", ["2.15"])
def test_the_wheel_works_in_another_torch(torch: str, project: Path, tmp_path: Path) -> None:
    made = environment(project, tmp_path / "environment", behind=other_python(f"torch{torch}"))
    script = "import borrowed_ops; print(borrowed_ops.unavailable)"
    assert made.check("-c", script) == "{}\n"
    said = made.check(TRUTH)
    assert "roi_align: 2 node tests of onnx" in said
