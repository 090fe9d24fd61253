"""A C++ program that uses only ONNX Runtime's C API loads the same library, and runs the exported models."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from opmatrix.toolchain.find import find_toolchain
from opmatrix.toolchain.ort_headers import INCLUDED
from tests.support.projects import Project

SOURCE = Path(__file__).with_name("run_model.cc")
MODELS = ("legacy17", "dynamo18")

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile it with opmatrix's headers of ONNX Runtime, and link the library of the onnxruntime package."""
    made = tmp_path_factory.mktemp("program") / "run_model"
    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    (made.parent / "libonnxruntime.so.1").symlink_to(library)  # its soname, which the package lacks
    command = [
        *find_toolchain(os.environ).compiler, "-std=c++20", "-Wall", "-Wextra", "-isystem", str(INCLUDED), str(SOURCE),
        str(library), f"-Wl,-rpath,{made.parent}", "-o", str(made),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return made


@pytest.fixture(scope="module")
def data_set(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write torch's inputs and outputs as a test data set."""
    folder = tmp_path_factory.mktemp("data") / "test_data_set_0"
    folder.mkdir()
    x, *outputs = np.load(exported / "data.npz").values()
    write(folder / "input_0.pb", x)
    for n, array in enumerate(outputs):
        write(folder / f"output_{n}.pb", array)
    return folder


def write(path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    path.write_bytes(numpy_helper.from_array(array).SerializeToString())


def run(program: Path, library: Path, model: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, library, model, folder], capture_output=True, text=True)


@pytest.mark.parametrize("model", MODELS)
def test_the_program_runs(program: Path, shipped: Project, exported: Path, data_set: Path, model: str) -> None:
    library = shipped.paths.linked_library("my_ops", "ort")
    done = run(program, library, exported / f"{model}.onnx", data_set)
    assert (done.returncode, done.stdout) == (0, "5 outputs, equal\n"), done.stderr


def test_the_program_finds_a_planted_difference(
    program: Path, shipped: Project, exported: Path, data_set: Path, tmp_path: Path
) -> None:
    for path in data_set.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    planted = numpy_helper.to_array(onnx.load_tensor(tmp_path / "output_0.pb")).copy()
    planted.flat[3] += 0.01
    write(tmp_path / "output_0.pb", planted)
    library = shipped.paths.linked_library("my_ops", "ort")
    done = run(program, library, exported / "legacy17.onnx", tmp_path)
    assert (done.returncode, done.stdout) == (1, "5 outputs, different\n")
    assert "1 elements differ" in done.stderr


def test_the_model_does_not_run_without_the_library(
    program: Path, shipped: Project, exported: Path, data_set: Path
) -> None:
    done = run(program, shipped.paths.linked_library("my_ops", "torch"), exported / "legacy17.onnx", data_set)
    assert done.returncode == 1
    assert "libtorch_cpu.so" in done.stderr or "RegisterCustomOps" in done.stderr
