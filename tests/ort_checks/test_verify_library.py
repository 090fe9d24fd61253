"""verify with a library that is no build of opmatrix. tests/faults/existing_verify.toml plants faults in another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opmatrix.basics.errors import VerifyError
from opmatrix.data import dataset
from opmatrix.data.dataset import DataSet
from opmatrix.ort_checks import save_case, verify
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.search import draw_inputs
from opmatrix.spec import Attribute
from opmatrix.toolchain.find import find_toolchain
from opmatrix.toolchain.ort_headers import INCLUDED
from tests.support import double
from tests.support.double import CELL, exported
from tests.support.taken_away import replayed

pytestmark = [pytest.mark.compile, pytest.mark.ort]

OPERATOR = replace(double.OPERATOR, handwritten_files=frozenset({"ort.cc"}))  # SOURCE, which may infer no shape
SOURCE = Path(__file__).with_name("double_ort.cc")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return exported(tmp_path, OPERATOR, "custom")


@pytest.fixture
def library(paths: Paths) -> Path:
    """Compile the library."""
    return build(paths)


def build(paths: Paths, *further: str) -> Path:
    library = paths.ort_library("double")
    library.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c++17", "-fPIC", "-shared", "-Wno-unused-result", f"-I{INCLUDED}", *further]
    subprocess.run([*find_toolchain(os.environ).compiler, *flags, str(SOURCE), "-o", str(library)], check=True)
    return library


def run(paths: Paths) -> None:
    verify.run(paths, OPERATOR, lowering="custom", cell=CELL)


def refused(paths: Paths) -> str:
    with pytest.raises(VerifyError) as caught:
        run(paths)
    assert verdict.read(paths.verdict("double", "custom", CELL)).outcome == "failed"
    return str(caught.value)


def test_the_right_kernel_is_verified(paths: Paths, library: Path) -> None:
    factor = Attribute(name="factor", kind="float", default=2.0, allowed=(2.0,))
    only = replace(OPERATOR.spec, types={"T": ("float32",)}, attributes=(factor,))  # which is all that the kernel has
    draw_inputs.run(paths, replace(OPERATOR, spec=only))
    run(paths)
    assert verdict.read(paths.verdict("double", "custom", CELL)).outcome == "verified"


def test_a_published_model_that_fails_has_data_and_can_be_taken_away(
    paths: Paths, library: Path, tmp_path: Path
) -> None:
    shutil.copytree(paths.data("double", "dynamic", 0), paths.published_data("double", 1))
    shutil.copyfile(paths.model("double", "custom", CELL, "dynamic"), paths.published_model("double", 1))
    kept = dataset.read(paths.published_data("double", 1))
    wrong = kept.outputs["Y"] + np.array([0, 0, 1], np.float32)
    dataset.write(paths.published_data("double", 1), DataSet(inputs=kept.inputs, outputs={"Y": wrong}))
    published = replace(OPERATOR, published=(1,))
    with pytest.raises(VerifyError, match="a model of version 1 runs no more"):
        verify.run(paths, published, lowering="custom", cell=CELL)
    records = json.loads(paths.mismatches(paths.verdict("double", "custom", CELL)).read_text())["mismatches"]
    assert [(one["case"], one["differing"], one["elements"]) for one in records] == [("published_1", 2, 6)]
    save_case.run(paths, published, lowering=None, cells=[CELL], case="published_1", into=tmp_path / "saved")
    done = replayed(tmp_path / "saved")
    assert done.returncode == 1 and "Y: 2 of 6 elements differ" in done.stdout, done.stdout + done.stderr
    assert "the model of version 1" in (tmp_path / "saved-elsewhere/README.txt").read_text()


def test_a_library_of_another_kind(paths: Paths) -> None:
    """As torch's library of the operator."""
    build(paths, "-DRegisterCustomOps=SomethingElse")
    assert "exports no RegisterCustomOps, so it is not a custom-op library of ONNX Runtime" in refused(paths)


def test_a_missing_and_a_damaged_library(paths: Paths, library: Path) -> None:
    library.unlink()
    assert "is missing. Run: python -m opmatrix compile double" in refused(paths)
    library.write_bytes(b"\x7fELF")
    message = refused(paths)
    assert "cannot be loaded: " in message
    assert "Build it again: python -m opmatrix compile double" in message
