"""An operator whose gradient another operator computes, with a kernel in C++: tests/projects/backward."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.projects import ROOT, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

GRADIENT = "register:soft_cap-gradient@torch2.13"
KERNEL = "register:soft_cap_backward-kernel@torch2.13"
CALLED = "native/soft_cap_backward/kernel.h"
ONLY = ("opsets=18", "soft_cap")

CHECKOUT = """
import torch
from pathlib import Path
from opmatrix.declaration.load import load_operator
from opmatrix.export.generated_modules import load_generated
from opmatrix.project.paths import Paths
from opmatrix.torch_checks.case_calls import serve
from opmatrix.torch_ops import load

paths = Paths(Path.cwd())
operator = load_operator(paths, "soft_cap")
load.load(paths, operator)
load_generated(paths, "soft_cap").fake.register_fake()
gradient = load.gradient(paths, operator.spec)
serve(paths, gradient)
gradient.register("backward::soft_cap")
"""
WHEEL = """
import seed_ops
import torch
"""
USE = """
def by_torch(x, scale, shift, limit):
    return limit * torch.tanh((x * scale + (0 if shift is None else shift)) / limit)

torch.manual_seed(0)
for shifted in (True, False):
    leaves = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((5, 3), (3,), (3,))[: 2 + shifted]]
    weights = torch.randn(5, 3, dtype=torch.float64)
    given = (*leaves, *([] if shifted else [None]))
    wanted = torch.autograd.grad((by_torch(*given, 1.5) * weights).sum(), leaves)
    output = torch.ops.backward.soft_cap(*given, limit=1.5)
    found = torch.autograd.grad((output * weights).sum(), leaves, create_graph=True)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    try:
        torch.autograd.grad(found[0].sum(), leaves[0])
    except RuntimeError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.copy(tmp_path_factory.mktemp("backward"), operators=())
    for part in ("ops", "native"):
        shutil.copytree(ROOT / "tests/projects/backward" / part, made.root / part, dirs_exist_ok=True)
    done = made.passes(*ONLY)
    assert KERNEL in done.stdout and "compile:soft_cap_backward" in done.stdout, "what its gradient needs runs, too"
    return made


def test_its_gradient_is_verified(project: Project) -> None:
    record = json.loads((project.paths.register_manifest("soft_cap", "gradient", torch="2.13")).read_text())
    assert record["outcome"] == "verified"
    checks = [result["check"] for result in record["results"]]
    assert "gradcheck" in checks and "gradgradcheck" not in checks


def test_autograd_calls_the_kernel_and_refuses_a_second_derivative(project: Project, tmp_path: Path) -> None:
    """In the checkout and in a wheel that ships the operator alone. The judge is torch's autograd of its formula."""
    project.replace("pyproject.toml", 'name = "seed_ops"\n', 'name = "seed_ops"\noperators = ["soft_cap"]\n')
    project.passes("dist", "--unverified")
    (wheel,) = (project.paths.build / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    for begin, folder in ((CHECKOUT, project.root), (WHEEL, tmp_path)):
        command = [sys.executable, "-c", begin + USE]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("backward.soft_cap_backward.default has no gradient") == 2


def test_an_edit_of_its_kernel_repeats_no_gradient_check(project: Project) -> None:
    with edited(project.root / CALLED, "of_shift += bent;", "of_shift += bent * (1 + 1e-15);"):
        done = project.doit(*ONLY)
        assert done.returncode == 0 and KERNEL in done.stdout, done.stdout
        assert GRADIENT not in done.stdout and "export:" not in done.stdout
    assert project.doit(*ONLY).returncode == 0


def test_a_wrong_kernel_of_the_gradient(project: Project) -> None:
    with edited(project.root / CALLED, "of_shift += bent;", "of_shift += 2 * bent;"):
        done = project.doit(*ONLY)
        assert done.returncode == 1, done.stdout
        assert f"{KERNEL} FAILED" in done.stdout and "grad_shift" in done.stdout
        record = json.loads((project.paths.register_manifest("soft_cap", "gradient", torch="2.13")).read_text())
        assert record["outcome"] == "failed" and record["blocked_by"]["name"] in KERNEL, (
            "the gradient is not verified by it"
        )
    assert project.doit(*ONLY).returncode == 0
