"""The folder of `doit dist --format hf-kernel`: `kernels` loads it, in an environment without this checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from opmatrix.addons.hf_kernel import write_folder
from opmatrix.basics.errors import DistError, UsageError
from opmatrix.commands.dodo import _with_dist_options
from opmatrix.declaration.load import load_operator, load_operators
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.wheel import run_unpacked
from opmatrix.wheel.run_unpacked import WheelRun
from opmatrix.wheel.settings import Dist
from tests.support.projects import ROOT, Project
from tests.wheel.shipping import Environment, other_python

TOOLS = "OPMATRIX_TOOLS"  # a folder of packages with `kernels`: `tox run -e tests` sets it
DIST = Dist(name="my_ops", version="1.2", operators=(), summary="Mine.", license="MIT", licenses=(), third_party={})


@pytest.fixture(scope="module")
def folder(shipped: Project) -> Path:
    """The folder, of the wheel that all tests here share."""
    done = shipped.passes("dist", "--format", "hf-kernel", "--unverified")
    assert "build/hf-kernel: " in done.stdout and "files for kernels.get_local_kernel" in done.stdout
    return shipped.paths.kernel_folder


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with torch and the package `kernels`, without the wheel, opmatrix and this checkout."""
    return with_kernels(tmp_path_factory.mktemp("kernels"), behind=Path(sys.executable))


def with_kernels(folder: Path, *, behind: Path) -> Environment:
    packages = os.environ.get(TOOLS)
    if not packages:
        pytest.skip(f"{TOOLS} names no folder with requirements/wheel.txt; `./run tox run -e tests` makes one")
    subprocess.run([str(behind), "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    ask = [str(behind), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    theirs = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    (site,) = folder.glob("lib/python3.*/site-packages")
    (site / "behind.pth").write_text(f"{theirs}\n{packages}\n")
    return Environment(folder / "bin/python")


LOAD = """
import sys
from pathlib import Path
import torch
from kernels import get_local_kernel
"""
USE = """
kernel = get_local_kernel(Path(sys.argv[1]), backend="cpu")
x = torch.randn(2, 8, 3, dtype=torch.float64, requires_grad=True)
one, zero = torch.ones(8, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
y = kernel.group_norm(x, torch.tensor([4.0]), one, zero)
torch.testing.assert_close(y, torch.nn.functional.group_norm(x, 4))
assert torch.autograd.gradcheck(lambda x: kernel.group_norm(x, torch.tensor([4.0]), one, zero), x, fast_mode=True)
fake = torch.empty(3, 5, device="meta")
left, right = torch.ops.cst.dual_residual(fake, fake, 0.5)
print(left.shape, right.device, kernel.__all__, kernel.unavailable)
print(*{"opmatrix", "onnx", "onnxruntime", "my_ops"} & {*sys.modules})
"""


@pytest.mark.compile
@pytest.mark.torch
def test_kernels_loads_the_folder(folder: Path, kernels: Environment) -> None:
    """Functions of the module, operators in torch.ops, fake kernels and gradients; nothing of opmatrix or onnx."""
    said = kernels.check("-c", LOAD + USE, folder).splitlines()
    names = "['add_and_round', 'dual_residual', 'group_norm', 'nms', 'unavailable']"
    assert said == [f"torch.Size([3, 5]) meta {names} {{}}", ""]


FAULTS = """
for path in sys.argv[1:]:
    try:
        get_local_kernel(Path(path), backend="cpu")
    except Exception as error:
        print(type(error).__name__, " ".join(str(error).split()))
    else:
        print("loaded")
"""


@pytest.mark.compile
@pytest.mark.torch
def test_a_folder_that_does_not_fit_is_refused(
    folder: Path, shipped: Project, kernels: Environment, tmp_path: Path
) -> None:
    """Of another torch, without its library, with a library of other operators, and beside one with the same."""
    planted = [tmp_path / name for name in ("other_torch", "no_library", "other_operators")]
    for path in planted:
        shutil.copytree(folder, path)
    other, *libraries = (path / write_folder.BUILD for path in planted)
    other.rename(other.with_name(other.name.replace("abi29", "abi299")))
    (libraries[0] / "libmy_ops_torch.so").unlink()
    shutil.copy(shipped.paths.torch_library("dual_residual"), libraries[1] / "libmy_ops_torch.so")
    torch, lost, lacks, same = kernels.check("-c", LOAD + FAULTS, *planted, folder).splitlines()
    assert "Torch stable ABI version (2.99) is too new for environment Torch version (2." in torch
    assert "libmy_ops_torch.so does not load in torch 2." in lost
    assert {text.partition(" ")[0] for text in (lost, lacks, same)} == {"ImportError"}
    assert "did not register mynamespace::custom_group_norm, opmatrix::nms" in lacks
    assert "cst::dual_residual: registered already, by another library" in same


@pytest.mark.matrix
@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ("2.6", "Torch stable ABI version (2.9) is too new for environment Torch version (2.6)"),
        ("2.9", "{'nms': 'needs torch 2.10 or newer, found 2.9"),
        ("2.15", "'unavailable'] {}"),
    ],
)
def test_one_folder_serves_other_torches(folder: Path, torch: str, said: str, tmp_path: Path) -> None:
    environment = with_kernels(tmp_path / "environment", behind=other_python(f"torch{torch}"))
    done = environment.run("-c", LOAD + USE, folder)
    assert said in done.stdout + done.stderr and (done.returncode == 0) == (torch != "2.6")


def test_what_is_in_the_folder(folder: Path) -> None:
    inside = folder / write_folder.BUILD
    files = {path.relative_to(inside).as_posix() for path in inside.rglob("*") if path.is_file()}
    assert {"__init__.py", "metadata.json", "dist.json", "functional.py", "libmy_ops_torch.so"} <= files
    assert not [name for name in files if "onnx" in name or "_ort" in name or "lowering" in name or "schema.py" in name]
    licenses = {"licenses/LICENSE.txt", "licenses/opmatrix/LICENSE"}
    assert {path for path in files if path.startswith("licenses/")} == licenses
    metadata = json.loads((inside / "metadata.json").read_text())
    assert metadata["name"] == "my-ops" and metadata["version"] == 1 and metadata["backend"] == {"type": "cpu"}
    assert metadata["id"].startswith("_my_ops_") and metadata["id"].isidentifier()
    assert not [p for p in inside.rglob("*.py") if re.search("import my_ops|from my_ops", p.read_text())]
    readme = (folder / "README.md").read_text()
    assert readme.startswith("---\nlibrary_name: kernels\nlicense: apache-2.0\n")
    assert "| `kernel.group_norm` | `mynamespace::custom_group_norm(Tensor x, " in readme and "Not verified." in readme
    assert "So are the operators that exist in ONNX alone:\ncustom_op_one, custom_op_two." in readme


@pytest.mark.compile
@pytest.mark.torch
def test_a_folder_is_run_before_it_is_written(shipped: Project, wheel: Path, tmp_path: Path) -> None:
    """So that a fault of the folder alone is found. tests/wheel/test_dist_faults.py writes a right one."""
    if not shipped.paths.data_manifest("group_norm").is_file():
        assert shipped.doit("data:group_norm").returncode == 0
    operators = [load_operator(shipped.paths, "group_norm")]
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    files = write_folder.folder_files(DIST, [operator.spec for operator in operators], packed)

    fake = f"{write_folder.BUILD}/_operators/group_norm/fake.py"
    planted = files | {fake: files[fake].replace(b"y = x.new_empty(x.shape)", b"y = x.new_empty(x.shape[1:])")}
    assert planted != files
    use = WheelRun(
        paths=shipped.paths, name=write_folder.package_name(DIST, packed), operators=operators,
        cells=[Cell(torch="2.13", exporter="legacy", opset=17, ort="1.31")], torch="2.13.0", folder=tmp_path,
        variant=f"kernel/{write_folder.BUILD}",
    )  # fmt: skip
    with pytest.raises(DistError, match=r"^the kernel folder does not work in torch: group_norm-\w+: the fake kernel "):
        run_unpacked.run_kernel(planted, use)


def test_operators_of_onnx_alone_are_no_kernel() -> None:
    specs = [operator.spec for operator in load_operators(Paths(ROOT)) if operator.name == "custom_op_one"]
    with pytest.raises(DistError, match="none of the operators has a library for torch, which is all that a kernel"):
        write_folder.folder_files(DIST, specs, {})


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("dist", "dist"),
        ("dist --format wheel", "dist"),
        ("dist --unverified", "dist:unverified"),
        ("dist --format hf-kernel", "dist:hf-kernel"),
        ("dist --format=hf-kernel --unverified verify", "dist:hf-kernel-unverified verify"),
        ("dist --unverified --format hf-kernel", "dist:hf-kernel-unverified"),
        ("verify --format hf-kernel", "verify --format hf-kernel"),
    ],
)
def test_options_of_dist_choose_its_step(typed: str, words: str) -> None:
    assert _with_dist_options(typed.split()) == words.split()
    for unknown in ("dist --format hfkernel", "dist --format"):
        with pytest.raises(UsageError, match=r"^dist --format: found '(hfkernel)?', allowed: wheel, hf-kernel$"):
            _with_dist_options(unknown.split())
