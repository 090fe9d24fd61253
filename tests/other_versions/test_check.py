"""`doit check --ort`: a model in another ONNX Runtime."""

from __future__ import annotations

import pytest

from tests.other_versions.conftest import Needs
from tests.support.projects import Project

pytestmark = [pytest.mark.matrix, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


def test_a_model_runs_in_the_requested_version(project: Project, needs: Needs) -> None:
    needs("ort1.18")
    cell = "group_norm-custom@torch2.13-legacy-opset18"
    project.passes(f"export:{cell}", "compile:group_norm")
    model = next(project.paths.build.glob("export/group_norm/custom/*/dynamic_float32/model.onnx"))
    done = project.passes("check", str(model), "--ort", "1.18", NO_COLOR="1", PYTHONIOENCODING="utf-8")
    lines = done.stdout.splitlines()
    runs = [line.split("in ONNX Runtime ")[1].split(",")[0] for line in lines if "✓ runs" in line]
    assert [version.rpartition(".")[0] for version in runs] == ["1.31", "1.18"]
    assert sum("✓ agrees" in line for line in lines) == 2
    # Both versions report a wrong kernel, because both run it.
    project.replace("native/group_norm/kernel.h", "(x - shift) * factor + bias", "(x - shift) * factor - bias")
    project.doit("compile:group_norm")
    done = project.doit("check", str(model), "--ort", "1.18", NO_COLOR="1", PYTHONIOENCODING="utf-8")
    assert done.returncode == 1
    assert sum("✗ first node" in line for line in done.stdout.splitlines()) == 2


def test_a_missing_environment_has_a_message_with_the_command(project: Project) -> None:
    (project.root / ".venv-matrix").unlink()
    cell = "group_norm-custom@torch2.13-legacy-opset18"
    assert project.doit(f"export:{cell}", "compile:group_norm").returncode == 0
    model = next(project.paths.build.glob("export/group_norm/custom/*/dynamic_float32/model.onnx"))
    done = project.doit("check", str(model), "--ort", "1.18")
    assert done.returncode == 0
    said = "not run in ONNX Runtime 1.18, of which there is no environment. Make it, and it will be: "
    assert f"{said}python -m opmatrix environment ort1.18" in done.stdout
