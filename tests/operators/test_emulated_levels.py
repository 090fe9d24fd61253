"""Kernels at x86-64-v4, which few processors have, on an emulated one. tests/examples has those of the examples."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.emulated_levels import differences, with_levels
from tests.support.projects import ROOT, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.slow]

OPERATORS = with_levels(ROOT)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project with the operators, compiled for all levels."""
    made = Project.copy(tmp_path_factory.mktemp("levels"), operators=OPERATORS)
    for name in OPERATORS:
        shutil.copy(ROOT / "ops" / name / "spec.py", made.root / "ops" / name)
    made.passes("-n", "2", "compile", "draw-inputs")
    return made


@pytest.mark.parametrize("name", OPERATORS)
def test_a_kernel_at_v4(project: Project, tmp_path: Path, name: str) -> None:
    assert differences(project.paths, tmp_path, name) == []


@pytest.mark.deep
def test_a_fault_of_v4_alone_is_found(project: Project, tmp_path: Path) -> None:
    line = "const Doubles found = line(simd::load<double>(x + i))"
    with edited(project.root / "native/group_norm/kernel.h", line, f"{line} + (simd::kBytes == 64 ? 1e-3 : 0.0)"):
        assert project.doit("compile:group_norm").returncode == 0
        found = differences(project.paths, tmp_path, "group_norm")
    assert found and "elements differ" in found[0]
