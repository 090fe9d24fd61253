"""`doit check` on functions that build torch modules, with faults planted in them, in kernels and in lowerings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics import finding
from tests.addons.check.models import checked, wrong
from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]


FUNCTION = """
import os
import torch

class Fragile(torch.nn.Module):
    def forward(self, x):
        if torch.onnx.is_in_onnx_export() and not torch.compiler.is_exporting():
            os.abort()
        return torch.relu(x)

def fragile():
    return Fragile(), (torch.zeros(2),)

class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x, m):
        norm = torch.ops.mynamespace.custom_group_norm(
            self.linear(x), torch.tensor([2.0]), torch.full((4,), 1.5), torch.zeros(4), 1e-5)
        return torch.relu(norm), torch.linalg.inv(m)

def build():
    torch.manual_seed(3)
    inputs = torch.randn(2, 4, 6), 4 * torch.eye(3) + torch.rand(3, 3)
    return Chain(), inputs, {"dynamic": {"x": ("N", None, None)}, "output_names": ["normed", "inverse"]}

def raises():
    return torch.zeros(2) @ torch.zeros(3)

def number():
    return 3

def no_tensors():
    return Chain(), (torch.zeros(1), 2.0)

def surplus():
    return Chain(), torch.zeros(1), {"dynamics": {}}

def bad_call():
    return Chain(), (torch.zeros(1),)

def unknown():
    class Unknown(torch.nn.Module):
        def forward(self, x):
            return torch.ops.mynamespace.custom_groupnorm(x)
    return Unknown(), (torch.zeros(1),)
"""


@pytest.fixture(scope="module")
def function(project: Project) -> str:
    (project.root / "chain.py").write_text(FUNCTION)
    return "chain.py"


def test_an_exporter_that_dies_does_not_stop_the_other(project: Project, function: str) -> None:
    code, text = checked(project, f"{function}:fragile")
    assert code == 1 and wrong(text) == ["export"]
    assert "while the legacy exporter ran: died of SIGABRT" in text
    assert text.count("gives the module Fragile") == 1
    assert "with torch 2.13: 1 output" in text.partition("torch2.13-dynamo-opset18")[2]


def test_two_custom_operators_agree_through_both_exporters(project: Project, function: str) -> None:
    code, text = checked(project, f"{function}:build")
    assert code == 0, text
    assert "torch2.13-legacy-opset18" in text and "torch2.13-dynamo-opset18" in text
    for twice in (
        "custom: 1 com.microsoft::Inverse (ops/inverse), 1 mydomain::mygroupnorm (ops/group_norm)",
        "with torch 2.13: 2 outputs within rtol=0.0001 atol=1e-05",
        "normed float32[N, 4, 6], inverse float32[3, 3]",
    ):
        assert text.count(twice) == 2, twice


def test_a_missing_torch_library_has_the_command_that_builds_it(project: Project, function: str) -> None:
    path = project.paths.torch_library("group_norm")
    away = path.rename(path.with_suffix(".away"))
    code, text = checked(project, f"{function}:build")
    away.rename(path)
    assert code == 2 and "the module raised AttributeError" in text
    last = text.splitlines()[-1]
    assert "libgroup_norm_torch.so is missing" in last and "python -m opmatrix compile group_norm" in last


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raises() raised RuntimeError: inconsistent tensor size"),
        ("bad_call", "the module raised TypeError: Chain.forward() missing 1 required positional argument: 'm'"),
        ("unknown", "has no attribute 'custom_groupnorm'"),
        ("number", "number() returned a int; return (module, inputs), or (module, inputs, options)"),
        ("no_tensors", "returned a float among the inputs, which must be a tuple of tensors"),
        ("surplus", "the option 'dynamics', allowed: input_names, output_names, dynamic; did you mean 'dynamic'?"),
        ("biuld", "chain.py: no function 'biuld', there is: fragile, build, raises"),
    ],
)
def test_a_function_that_builds_no_model_is_one_sentence(
    project: Project, function: str, name: str, words: str, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a child, since a process of each would import torch."""
    from opmatrix.addons.check import capture

    monkeypatch.chdir(project.root)
    target = f"{function}:{name}"
    run = partial(capture.run, project.paths, target=target, exporters=["legacy"], opset=18, into=tmp_path)
    assert forked(run, tmp_path / "log") == ""
    said = finding.read(tmp_path / capture.PART)[1]["error"]
    assert words in said and "\n" not in said


@pytest.mark.parametrize(
    "kernel",
    [("group_norm", "  double unit = 1;", "  if (count > 0) __builtin_trap();\n  double unit = 1;")],
    indirect=True,
)
def test_a_crash_in_torch_is_a_finding(kernel: Project, function: str) -> None:
    code, text = checked(kernel, f"{function}:build")
    assert code == 1 and wrong(text) == ["torch"]
    assert "while the model ran in torch 2.13: died of SIGILL" in text
    assert "Replay: python -m opmatrix check-capture chain.py:build" in text
