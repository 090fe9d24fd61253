"""The gradient of group_norm is proved, and faults of each kind in a formula are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.load import load_operator
from tests.ops.forked import forked
from tests.ops.projects import Project

pytestmark = pytest.mark.torch

FORMULA = "ops/group_norm/torch_op.py"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with few models, in which nothing is built: the formula needs no library."""
    project = Project.copy(tmp_path / "project")
    few(project, 'static("float64"), flat("float64")')
    return project


def few(project: Project, models: str) -> None:
    cases = project.layout.cases("group_norm")
    cases.write_text(cases.read_text() + f"\nMODELS = (SEED, {models})\n")


def register(project: Project) -> str:
    """Return the message of the error that the gradient part raises, or ""."""

    def run() -> None:
        from pipeline.stages import register

        register.run(project.layout, load_operator(project.layout, "group_norm"), part="gradient")

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # once for all children: gradcheck needs it

    return forked(run, project.root / "output")


def test_a_right_formula_passes_in_silence(project: Project) -> None:
    assert register(project) == ""
    assert (project.root / "output").read_text() == ""
    results = json.loads(project.layout.registered("group_norm", "gradient", torch="2.13").read_text())["results"]
    checks = {(r["case"], r["check"]) for r in results}
    assert {("sliced_float64", "gradcheck"), ("expanded_float64", "gradcheck")} <= checks
    assert ("flat_float64", "gradgradcheck") in checks
    assert "nan_float64" not in {r["case"] for r in results}  # a NaN has no derivative


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("- z * mean(inner * z)", "", "gradcheck says: Jacobian mismatch for output 0 with respect to input 0"),
        ("(outer * z).sum((0, 2))", "outer.sum((0, 2))", "Jacobian mismatch for output 0 with respect to input 1"),
        ("centred * rate", "(centred * rate).detach()", "torch.autograd.gradgradcheck says: Jacobian mismatch"),
        ("(outer * z).sum((0, 2)), outer", "None, outer", "gives no gradient for 'scale'. Give one, or name it in"),
        ('("num_groups",)', '("num_groups", "bias")', "gives a gradient for 'bias', which WITHOUT_GRADIENT names"),
        ('("num_groups",)', '("group",)', "WITHOUT_GRADIENT names 'group', allowed: x, num_groups, scale, bias"),
        ("outer.sum((0, 2)), None", "outer.sum(0), None", "backward() raises RuntimeError: "),
        ("outer = grad", "outer = grid", "backward() raises NameError: name 'grid' is not defined"),
        ("import torch\n", "import torch\n1 / 0\n", "torch_op.py:6: ZeroDivisionError: division by zero"),
        ("def setup_context", "def set_up", "ops/group_norm/torch_op.py: no function setup_context()"),
    ],
)  # fmt: skip
def test_a_wrong_formula_is_named(old: str, new: str, expected: str, project: Project) -> None:
    project.replace(FORMULA, old, new)
    few(project, 'flat("float64")')
    message = register(project)
    assert expected in message
    assert FORMULA in message


def test_a_formula_without_a_case_to_check_it_is_refused(project: Project) -> None:
    few(project, 'static("float32")')
    expected = "group_norm: no case to check its gradient with. Add one to cases.py that is finite, float64"
    assert expected in register(project)
