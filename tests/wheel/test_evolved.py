"""A wheel of an operator with two versions: its user exports and runs models of both. A C++ program that uses only ONNX
Runtime's C API loads the same library, and runs the exported models.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from opmatrix.toolchain.find import find_toolchain
from opmatrix.toolchain.ort_headers import INCLUDED
from tests.support.evolved import SINCE, evolve
from tests.support.projects import Project
from tests.wheel.shipping import SETTINGS, Environment, build

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

EXPORT = """
import sys, numpy as np, torch, my_ops
from my_ops import functional
folder, first = sys.argv[1], my_ops.onnx.domain_versions()
newest = my_ops.onnx.domain_versions(newest=True)
assert (first, newest) == ({"mydomain": 1}, {"mydomain": 3}), (first, newest)
assert [s.since_version for s in my_ops.onnx.schemas()] == [1, 3]

class Model(torch.nn.Module):
    def __init__(self, **lift):
        super().__init__()
        self.lift = lift
    def forward(self, x, groups, scale, bias):
        return functional.group_norm(x, groups, scale, bias, 1e-3, **self.lift)

names = ["x", "groups", "scale", "bias"]
inputs = torch.randn(2, 4, 3, 3), torch.tensor([2.0]), torch.ones(4), torch.zeros(4)
arrays = {n: t.numpy() for n, t in zip(names, inputs)}
for version, model, domains in ((1, Model(), {}), (3, Model(lift=0.25), newest)):
    np.savez(f"{folder}/{version}.npz", y=model(*inputs).numpy(), **arrays)
    with my_ops.onnx.symbolics(18, domains=domains):
        torch.onnx.export(model, inputs, f"{folder}/{version}-legacy.onnx", dynamo=False, opset_version=18,
                          input_names=names, custom_opsets=domains)
    table = my_ops.onnx.translation_table(18, domains=domains)
    torch.onnx.export(model, inputs, dynamo=True, opset_version=18, custom_translation_table=table, input_names=names,
                      verbose=False).save(f"{folder}/{version}-dynamo.onnx")
try:
    with my_ops.onnx.symbolics(18):
        torch.onnx.export(Model(lift=0.25), inputs, f"{folder}/no.onnx", dynamo=False, opset_version=18)
except Exception as error:
    print(error)
try:
    my_ops.onnx.translation_table(18, domains={"mydomain": 4})
except ValueError as error:
    print(error)
"""
RUN = """
import sys, numpy as np, onnx, onnxruntime, my_ops_onnxruntime
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(my_ops_onnxruntime.library_path())
for version in (1, 3):
    data = dict(np.load(f"{sys.argv[1]}/{version}.npz"))
    expected = data.pop("y")
    for exporter in ("legacy", "dynamo"):
        path = f"{sys.argv[1]}/{version}-{exporter}.onnx"
        model = onnx.load_model(path)
        (imported,) = (o.version for o in model.opset_import if o.domain == "mydomain")
        names = sorted(a.name for a in model.graph.node[0].attribute)
        (found,) = onnxruntime.InferenceSession(path, options).run(None, data)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        print(version, exporter, imported, *names)
"""


def test_a_wheel_has_both_versions(tmp_path: Path) -> None:
    made = Project.copy(tmp_path / "project")
    evolve(made)
    settings = made.root / "pyproject.toml"
    text, _, rest = settings.read_text().partition("[tool.opmatrix.dist]")
    settings.write_text(text + "[tool.doit]\n" + rest.partition("[tool.doit]\n")[2] + SETTINGS)
    (made.root / "LICENSE.txt").write_text("As you like it.\n")
    environment = Environment.make(tmp_path / "fresh", build(made), behind=Path(sys.executable))
    said = environment.check("-W", "ignore", "-c", EXPORT, tmp_path)
    assert (
        f"group_norm: lift=0.25 needs version {SINCE} of 'mydomain', and the model imports 1, where it is 0.0. Export "
        "at a newer version of the domain, or leave it out"
    ) in said
    assert "group_norm is not in version 4 of 'mydomain'; it is in: 1, 2, 3" in said
    assert environment.check("-c", RUN, tmp_path).splitlines() == [
        "1 legacy 1 epsilon",
        "1 dynamo 1 epsilon",
        "3 legacy 3 epsilon lift schema_version",
        "3 dynamo 3 epsilon lift schema_version",
    ]


SOURCE = Path(__file__).with_name("run_model.cc")
MODELS = ("legacy17", "dynamo18")


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
