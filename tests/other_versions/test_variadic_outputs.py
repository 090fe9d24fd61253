"""Outputs of any number of tensors (tests/projects/variadic) in other versions of torch and of ONNX Runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.basics.version import older
from opmatrix.data import write_data
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.search import draw_inputs
from opmatrix.toolchain import compile
from tests.other_versions.conftest import Needs
from tests.other_versions.environments import environment
from tests.support.building import build, copy_project
from tests.support.projects import ROOT

pytestmark = [pytest.mark.matrix, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

NAMES = ("scale_all", "split_rows")
# The exporters of a torch, each with an opset that it writes.
EXPORTERS = {
    "1.13": {"legacy": 16}, "2.6": {"legacy": 17, "dynamo": 18}, "2.15": {"legacy": 17, "dynamo": 18},
}  # fmt: skip


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """The operators, built for the main environment, with their data."""
    made = copy_project(tmp_path_factory.mktemp("variadic"))
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tests/projects/variadic", made.root, dirs_exist_ok=True, ignore=ignored)
    for name in (*NAMES, "deal"):
        operator = build(made, name)
        write_data.run(made, operator)
        draw_inputs.run(made, operator)
    return made


def verdict(paths: Paths, name: str, cell: str, python: Path) -> str:
    """Verify a cell with a Python, and return the outcome."""
    command = [str(python), "-m", "opmatrix", "verify", name, "--lowering", "custom", "--cell", cell]
    variables = os.environ | {"PYTHONPATH": str(ROOT / "pipeline"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=paths.root, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(json.loads((paths.build / f"verify/{name}/custom/{cell}.json").read_text())["outcome"])


@pytest.mark.parametrize("torch", ["2.6", *(pytest.param(t, marks=pytest.mark.deep) for t in ("1.13", "2.15"))])
def test_both_bindings_and_both_exporters(paths: Paths, torch: str, needs: Needs) -> None:
    needs(f"torch{torch}")
    one = environment(torch)
    for name in NAMES:
        if older(torch, "2.10"):
            compile.run(paths, load_operator(paths, name), torch=one.folder)
        for part in ("schema", "kernel", "nodes", "search"):
            done = one.stage(paths.root, "register", name, "--part", part)
            assert done.returncode == 0, done.stdout + done.stderr
        for exporter, opset in EXPORTERS[torch].items():
            cell = f"torch{torch}-{exporter}-opset{opset}-ort1.31"
            done = one.stage(paths.root, "export", name, "--lowering", "custom", "--cell", cell)
            assert done.returncode == 0, done.stdout + done.stderr
            assert verdict(paths, name, cell, Path(sys.executable)) == "verified"


@pytest.mark.parametrize("ort", ["1.16", "1.21"])
def test_older_onnx_runtimes(paths: Paths, ort: str, needs: Needs) -> None:
    """1.16 takes an operator of several dtypes for different ones if the least numbers of tensors differ, and has no
    uint4, which one of them may be."""
    needs(f"ort{ort}")
    for name in (*NAMES, "deal"):
        cell = f"{'node' if name == 'deal' else 'torch2.13-legacy'}-opset18-ort{ort}"
        command = [sys.executable, "-m", "opmatrix", "export", name, "--lowering", "custom", "--cell", cell]
        done = subprocess.run(command, cwd=paths.root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert verdict(paths, name, cell, Paths(ROOT).environment(f"ort{ort}") / "bin/python") == "verified"
