"""A dtype, a layout and a device that have one legal value (tests/projects/scalars), in other versions of torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from tests.other_versions.conftest import Needs
from tests.other_versions.environments import environment
from tests.support.projects import ROOT

pytestmark = [pytest.mark.matrix, pytest.mark.torch]

CALLS = """
import io
import sys
import warnings

import torch

sys.path.insert(0, {folder!r})
import fake

warnings.simplefilter("ignore")
defined = fake.define()
called, x = torch.ops.sca.dequantized, torch.ones(3, dtype=torch.int8)
right = {{"dtype": torch.float32, "layout": torch.strided, "device": torch.device("cpu"), "accumulated": None}}
right["scale"] = 1.0
wrong = {{"dtype": torch.float64, "layout": torch.sparse_coo}}
wrong |= {{"device": torch.device("meta"), "accumulated": torch.int8}}
assert called(x, **right).dtype == torch.float32
new = hasattr(torch.onnx, "ONNXProgram")


class Model(torch.nn.Module):
    def __init__(self, given):
        super().__init__()
        self.given = given

    def forward(self, x):
        return called(x, **self.given)


def legacy(model):
    torch.onnx.export(model, (x,), io.BytesIO(), opset_version=15, **({{"dynamo": False}} if new else {{}}))


def dynamo(model):
    torch.onnx.export(model, (x,), dynamo=True, verbose=False)


for name, value in wrong.items():
    for attempt in (lambda model: model(x), legacy, *([dynamo] if new else [])):
        try:
            attempt(Model({{**right, name: value}}))
        except Exception as error:
            while error.__cause__ is not None:
                error = error.__cause__
            print([line for line in str(error).splitlines() if "must be" in line][0])
"""
MESSAGES = (
    "dtype must be torch.float32, got torch.float64",
    "layout must be torch.strided, got torch.sparse_coo",
    "device must be cpu, got meta",
    "accumulated must be None, got torch.int8",
)


@pytest.mark.parametrize("torch", ["1.13", "2.6", "2.15"])
def test_another_value_is_refused_in_a_call_and_by_each_exporter(torch: str, tmp_path: Path, needs: Needs) -> None:
    needs(f"torch{torch}")
    spec = load_operator(Paths(ROOT / "tests/projects/scalars"), "dequantized").spec
    (tmp_path / "fake.py").write_text(python_modules.render(spec)["fake.py"])
    done = environment(torch).run("-c", CALLS.format(folder=str(tmp_path)))
    times = 2 if torch == "1.13" else 3
    expected = [f"sca::dequantized: {message}" for message in MESSAGES for _ in range(times)]
    assert [line for line in done.stdout.splitlines() if "must be" in line] == expected, done.stdout + done.stderr
