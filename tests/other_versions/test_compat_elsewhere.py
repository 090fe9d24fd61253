"""`doit compat` in other torches, with a result for each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.other_versions.conftest import Needs
from tests.support.projects import ROOT, Project

pytestmark = [
    pytest.mark.matrix, pytest.mark.compile, pytest.mark.torch, pytest.mark.deep,
]  # fmt: skip


def test_each_torch_has_its_own_result(tmp_path: Path, needs: Needs) -> None:
    needs("torch1.13", "torch2.6", "torch2.15")
    project = Project.copy(tmp_path, operators=("dual_residual",))
    (tmp_path / ".venv-matrix").symlink_to(ROOT / ".venv-matrix")
    project.replace("ops/dual_residual/spec.py", 'name="cst::dual_residual"', 'name="cst::dual_residual", batch="..."')
    done = project.passes("compat", "dual_residual", "torch=1.13,2.6,2.15")
    assert "dual_residual unsupported in torch 1.13: needs torch 2.5" in done.stdout
    for torch in ("2.6", "2.15"):
        record = json.loads(project.paths.compat_record("dual_residual", torch=torch).read_text())
        outcomes = {row["name"]: row["outcome"] for row in record["results"]}
        assert {row["name"]: row["detail"] for row in record["results"]}["torch.vmap"] == "one call for all samples"
        assert outcomes == dict.fromkeys(("torch.compile", "AOTInductor", "torch.vmap", "torch.autocast"), "works") | {
            "torch.func.grad": "refused",
            "torch.func.jvp": "refused",
        }
    assert "run, " not in project.doit("compat", "torch=1.13,2.6,2.15").stdout, "it is kept"
