"""`doit compat`: a step that `doit` leaves out, kept per operator and torch, and in the next report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from opmatrix.torch_ops import transforms
from tests.support.projects import ROOT, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

OPERATOR = ("ops/group_norm", "native/group_norm")
RESULT = "compat:group_norm@torch2.13"
WORKS = ("torch.compile", "AOTInductor", "torch.vmap", "torch.autocast")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The group norm with the seeds' features only, verified at one opset."""
    made = Project.copy(tmp_path_factory.mktemp("compat"), operators=())
    for folder in OPERATOR:
        shutil.copytree(ROOT / "tests/projects/minimal" / folder, made.root / folder)
    made.passes("opsets=18")
    return made


def rows(project: Project) -> dict[str, tuple[str, str]]:
    report = json.loads((project.paths.build / "report/report.json").read_text())
    return {row["name"]: (row["outcome"], row["detail"]) for one in report["compat"] for row in one["rows"]}


@pytest.mark.deep
def test_the_command_the_report_and_what_repeats(project: Project) -> None:
    assert not project.paths.compat_record("group_norm", torch="2.13").exists(), "plain doit leaves it out"
    done = project.doit("compat", "group_norm")
    assert done.returncode == 0 and RESULT in done.stdout, done.stdout + done.stderr
    assert "○ torch.func.grad refused (group_norm)" in done.stdout
    assert "run, " not in project.doit("compat").stdout, "it is kept"
    done = project.doit("opsets=18")
    assert done.returncode == 0 and "1 run, " in done.stdout, "the report alone"
    expected = dict.fromkeys(WORKS, ("works", "")) | {
        "torch.vmap": ("works", "one call per sample"),
        "torch.func.grad": ("refused", f"it {transforms.NO_FORMULA}"),
        "torch.func.jvp": ("refused", f"it {transforms.NO_FORWARD_MODE}"),
    }
    assert rows(project) == expected
    assert "| group\\_norm | 2.13 | ✓ | ✓ | ✓ | ✓ | ○ | ○ |" in (project.paths.build / "report/summary.md").read_text()
    assert "0 run" in project.doit("opsets=18").stdout.replace("all up to date", "0 run")
    with edited(project.paths.kernel("group_norm"), "rate = 1 / sqrt", "rate = 1.25 / sqrt"):
        done = project.doit("opsets=18")
        assert RESULT not in done.stdout.partition("not in the report")[0], "doit does not repeat it"
        assert "not in the report, for what earlier runs verified is out of date: group_norm-compat@torch2.13" in (
            done.stdout
        )
        assert rows(project) == {}


def test_an_operator_with_nothing_of_its_own_in_torch(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, operators=("gelu", "custom_op_one"))
    for name in ("gelu", "custom_op_one"):
        done = project.doit("compat", name)
        assert done.returncode == 2 and f"{name} has no operator of its own in torch" in done.stderr
    assert "no operator 'gelo'; did you mean 'gelu'?" in project.doit("compat", "gelo").stderr
