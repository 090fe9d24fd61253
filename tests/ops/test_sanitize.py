"""Kernels and bindings under AddressSanitizer and UndefinedBehaviorSanitizer: nothing is found, and planted faults are.

Whoever runs this by hand: `python -m pipeline sanitize OPERATOR`, once its data, drawn inputs and models are there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.load import load_operator, operator_names
from pipeline.project import default_cells
from pipeline.schema import has_ort_library, has_torch_library
from tests.ops.projects import ROOT, Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

FAULTS = {
    "const double shift = x[0];": ("const double shift = x[count];", "heap-buffer-overflow"),
    "constexpr int kChains = 2;": (
        "constexpr int kChains = 2; std::int64_t all = INT64_MAX; all += count; if (all == 0) return {};",
        "signed integer overflow",
    ),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.copy(tmp_path_factory.mktemp("sanitized"), operators=operator_names(Project(ROOT).layout))


def prepare(project: Project, name: str) -> None:
    """Make what `sanitize` runs: data, drawn inputs and the models of one cell."""
    operator = load_operator(project.layout, name)
    cell = operator.cells(default_cells(project.layout))[0]
    drawn = [f"draw:{name}"] if has_torch_library(operator.spec) else []
    uses = [f"glue:{used}" for used in operator.spec.uses]
    done = project.doit("sdk", *uses, f"data:{name}", *drawn, f"export:{name}-custom@{cell.export_name}")
    assert done.returncode == 0, done.stdout + done.stderr


def sanitize(project: Project, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", "sanitize", name]
    return subprocess.run(command, cwd=project.root, capture_output=True, text=True)


OPERATORS = [
    name
    for name in operator_names(Project(ROOT).layout)
    if has_ort_library(load_operator(Project(ROOT).layout, name).spec)
]


@pytest.mark.parametrize("name", OPERATORS)
def test_nothing_is_found(name: str, project: Project) -> None:
    prepare(project, name)
    done = sanitize(project, name)
    assert done.returncode == 0, done.stderr
    assert "verify" in done.stdout


@pytest.mark.parametrize("old", FAULTS)
def test_a_fault_is_found(old: str, tmp_path: Path) -> None:
    project = Project.copy(tmp_path)
    new, found = FAULTS[old]
    project.replace("native/group_norm/kernel.h", old, new)
    assert project.doit("sdk", "glue:group_norm", "data:group_norm").returncode == 0
    done = sanitize(project, "group_norm")
    assert done.returncode == 12
    assert found in done.stderr and "native/group_norm/kernel.h" in done.stderr
