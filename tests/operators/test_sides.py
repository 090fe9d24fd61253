"""A kernel that is wrong in torch alone or in ONNX Runtime alone: only the wrong framework reports it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from opmatrix.basics.errors import VerifyError
from opmatrix.basics.version import minor
from opmatrix.declaration.load import load_operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from tests.support.building import build, copy_project
from tests.support.forked import forked
from tests.support.projects import ROOT

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

CELL = Cell(torch="2.13", exporter="legacy", opset=18, ort=minor(installed().onnxruntime))
# The arguments that the generated bindings pass to the kernel.
SCALE_AND_BIAS = re.compile(r"scale\.view<T>\(\),\s+bias\.view<T>\(\),")
SWAPPED = "bias.view<T>(), scale.view<T>(),"
RATE = re.compile("const double rate")

IN_TORCH = "of 12 elements differ beyond rtol=2.5e-07 atol=1e-07; worst at ("
IN_ORT = "The reference evaluator agrees with the expected output: kernel or reference (in float64) is wrong"

# File, old text, planted text; the messages of register and verify.
FAULTS = {
    "none": ("native/group_norm/kernel.h", RATE, "const double rate", "", ""),
    "torch": ("build/generated/group_norm/torch.cc", SCALE_AND_BIAS, SWAPPED, IN_TORCH, ""),
    "ort": ("build/generated/group_norm/ort.cc", SCALE_AND_BIAS, SWAPPED, "", IN_ORT),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Return a project with two models, all of them exported."""
    from opmatrix.data import write_data
    from opmatrix.export import write_models

    paths = copy_project(tmp_path_factory.mktemp("sides"))
    cases = paths.cases("group_norm")
    cases.write_text(cases.read_text() + '\nMODELS = (SEED, dynamic("float32", THREADS))\n')
    operator = build(paths)
    write_data.run(paths, operator)
    written = forked(lambda: write_models.run(paths, operator, lowering="custom", cell=CELL), paths.root / "output")
    assert written == ""
    return paths


@pytest.mark.parametrize("side", FAULTS)
def test_only_the_wrong_framework_reports_it(side: str, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    from opmatrix.toolchain import compile

    file, old, new, in_torch, in_ort = FAULTS[side]
    path = paths.root / file
    original = path.read_text()
    assert len(old.findall(original)) == 1
    path.write_text(old.sub(new, original))
    try:
        compile.run(paths, load_operator(paths, "group_norm"))
    finally:
        path.write_text(original)
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # which verify does not allow
    for said, expected in ((register(paths), in_torch), (verify(paths), in_ort)):
        assert expected in said and bool(expected) == bool(said), said


def register(paths: Paths) -> str:
    """Return the message of register, run in a new process: a forked one has lost the threads of OpenMP."""
    command = [sys.executable, "-m", "opmatrix", "register", "group_norm", "--part", "kernel"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "pipeline")}
    return subprocess.run(command, cwd=paths.root, env=environment, capture_output=True, text=True).stderr


def verify(paths: Paths) -> str:
    from opmatrix.ort_checks import verify

    try:
        verify.run(paths, load_operator(paths, "group_norm"), lowering="custom", cell=CELL)
    except VerifyError as error:
        return str(error)
    return ""
