"""A wheel ships only what is verified: faults planted in the kernel, at link time and in the packed Python."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from opmatrix.basics.errors import DistError
from opmatrix.declaration.load import load_operator
from opmatrix.project.cells import Cell
from opmatrix.toolchain.find import find_toolchain
from opmatrix.wheel import run_unpacked
from opmatrix.wheel.run_unpacked import WheelRun
from tests.support.projects import ROOT, Project
from tests.wheel.shipping import SETTINGS, wheel_of

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

KERNEL = "native/group_norm/kernel.h"
RIGHT, WRONG = "(count) + static_cast<double>(epsilon)", "(count) + 0.01 + static_cast<double>(epsilon)"
PACKED = "my_ops/_operators/group_norm/"
VENDORED = "my_ops/_opmatrix/wheel/runtime/"


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The smallest project, with its wheel. It has one exporter; tests/test_installed.py ships with both."""
    made = Project.copy(tmp_path_factory.mktemp("verified"), operators=())
    shutil.copytree(
        ROOT / "tests/projects/minimal", made.root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    text = (made.root / "pyproject.toml").read_text()
    table = '[tool.opmatrix.opsets]\nlegacy = [17]\ndynamo = []\nnode = []\n[tool.doit]\nloader = "opmatrix"\n'
    limits = text.partition("[tool.opmatrix.limits]")[2]
    (made.root / "pyproject.toml").write_text(
        f"[tool.opmatrix]\nformat = 1\n{table}{SETTINGS}[tool.opmatrix.limits]{limits}"
    )
    (made.root / "LICENSE.txt").write_text("As you like it.\n")
    done = made.passes("dist")
    assert "1 case in 2 runs from the wheel\nbuild/dist/my_ops-1.0.0-py3" in done.stdout
    return made


def test_the_wheel_says_what_is_verified(verified: Project) -> None:
    with zipfile.ZipFile(wheel_of(verified)) as archive:
        about = json.loads(archive.read("my_ops/dist.json"))
    assert about["verified"].keys() == {"torch", "onnxruntime", "cells", "checks", "objects"}
    assert (about["verified"]["cells"], about["verified"]["checks"]) == (1, 5)
    assert "all up to date" in verified.doit("dist").stdout


def test_a_folder_for_kernels_is_of_the_verified_wheel(verified: Project) -> None:
    done = verified.passes("dist", "--format", "hf-kernel")
    assert "1 case in 1 run from the kernel folder\nbuild/hf-kernel: " in done.stdout
    assert "Verified: 1 cell and 5 checks, in torch 2." in (verified.paths.kernel_folder / "README.md").read_text()
    assert "all up to date" in verified.doit("dist", "--format", "hf-kernel").stdout
    (verified.paths.kernel_folder / "README.md").unlink()
    assert " dist:hf-kernel\n" in verified.doit("dist", "--format", "hf-kernel").stdout
    assert (verified.paths.kernel_folder / "README.md").is_file()


def test_a_result_that_no_signer_signed_does_not_ship(verified: Project) -> None:
    """`forget` runs the step again, which makes it a result of this machine."""
    text = (verified.root / "pyproject.toml").read_text()
    line = "ci ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIENftjgiitC6h3Q+V0Eu7n2R6wRW/vZQD24wnrbK/dqO"
    with closing(sqlite3.connect(verified.paths.state)) as database:
        database.execute("insert into origin values ('compile:group_norm', 'https://cache.example.org', null)")
        database.commit()
    (verified.root / "pyproject.toml").write_text(
        f"{text}\n[tool.opmatrix.cache]\nmode = 'off'\nsigners = ['{line}']\n"
    )
    try:
        done = verified.doit("dist")
        assert done.returncode == 1
        assert "1 result of the wheel came from a shared cache without the signature of a signer" in done.stdout
        (command,) = re.findall(r"doit (forget compile) && doit dist", " ".join(done.stdout.split()))[:1]
        assert verified.doit(*shlex.split(command)).returncode == 0
        assert verified.doit("compile:group_norm").returncode == 0
        with closing(sqlite3.connect(verified.paths.state)) as database:
            assert database.execute("select * from origin").fetchall() == []
    finally:
        (verified.root / "pyproject.toml").write_text(text)


def test_a_wrong_kernel_ships_only_unverified(verified: Project) -> None:
    wheel = wheel_of(verified)
    verified.replace(KERNEL, RIGHT, WRONG)
    try:
        done = verified.doit("dist")
        assert done.returncode == 1
        assert " register:group_norm-kernel@torch2.13 FAILED\n" in done.stdout
        assert re.search(r"^no wheel is built, because (register|verify):group_norm-\S+ failed$", done.stdout, re.M)
        assert "] dist" not in done.stdout and wheel_of(verified) == wheel, "what was verified stays"
        hand = verified.stage("dist")
        assert (hand.returncode, "Run: doit dist" in hand.stderr) == (DistError.exit_code, True), hand.stderr
        done = verified.passes("dist", "--unverified")
        assert "not verified: neither compared with what was verified nor run" in done.stdout
        assert wheel_of(verified).name.startswith("my_ops-1.0.0+unverified-py3-none-")
        with zipfile.ZipFile(wheel_of(verified)) as archive:
            assert json.loads(archive.read("my_ops/dist.json"))["verified"] is False
    finally:
        verified.replace(KERNEL, WRONG, RIGHT)
    done = verified.passes("dist")
    assert "] " in done.stdout and " dist\n" in done.stdout, "the unverified wheel does not satisfy it"
    assert wheel_of(verified) == wheel


def test_a_choice_of_cells_is_refused(verified: Project) -> None:
    done = verified.doit("torch=2.9", "dist")
    assert done.returncode == 2
    assert "a wheel ships what is verified in the default cells: run `doit dist` without torch=" in done.stderr


# These tests plant faults in a packed wheel of the seeds' group_norm, with one exporter.


def packed(wheel: Path, plant: Callable[[str, bytes], bytes]) -> bytes:
    """Return a wheel with the files that `plant` makes of its files."""
    made = io.BytesIO()
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(made, "w") as planted:
        before = {name: archive.read(name) for name in archive.namelist()}
        after = {name: plant(name, content) for name, content in before.items()}
        assert before != after
        for name, content in after.items():
            planted.writestr(name, content)
    return made.getvalue()


def replaced(file: str, old: str, new: str) -> Callable[[str, bytes], bytes]:
    def plant(name: str, content: bytes) -> bytes:
        assert name != file or old.encode() in content
        return content.replace(old.encode(), new.encode()) if name == file else content

    return plant


def without_operators(name: str, content: bytes) -> bytes:
    """A library for ONNX Runtime that registers nothing, as if RegisterCustomOps lacked its operators."""
    if not name.endswith("_ort.so"):
        return content
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "empty.cc"), Path(folder, "empty.so")
        source.write_text('extern "C" void* RegisterCustomOps(void*, const void*) { return nullptr; }\n')
        compiler = find_toolchain(os.environ).compiler
        subprocess.run([*compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        return library.read_bytes()


FAULTS = {
    "fake_kernel": (
        replaced(f"{PACKED}fake.py", "y = x.new_empty(x.shape)", "y = x.new_empty(x.shape[1:])"),
        r"does not work in torch: group_norm-\w+: the fake kernel gives output 0 as torch\.float32 of shape ",
    ),
    "gradient": (
        replaced(f"{PACKED}torch_op.py", "ctx.eps = inputs", "ctx.eps = (*inputs[:-1], 2.0)"),
        r"does not work in torch: group_norm-\w+: the gradient: GradcheckError: Jacobian",
    ),
    "vendored": (
        replaced(f"{VENDORED}operators.py", "import importlib\n", "import importlib, opmatrix\n"),
        r"does not work in torch: ModuleNotFoundError: No module named 'opmatrix', which an environment with the ",
    ),
    "own_lowering": (
        replaced(f"{PACKED}own_lowering.py", 'g.op("Add", variance', 'g.op("Nonsense", variance'),
        r"does not work in torch: group_norm: the legacy exporter at opset 17: ",
    ),
    "own_lowering_wrong_values": (
        replaced(f"{PACKED}own_lowering.py", "g.constant(epsilon,", "g.constant(2 * epsilon + 0.1,"),
        r"gives other outputs than the expected ones:\ngroup_norm-\w+, legacy-opset17-decomposed: y: \d+ of ",
    ),
    "RegisterCustomOps": (
        without_operators,
        r"does not work in ONNX Runtime: group_norm-\w+, legacy-opset17 in ONNX Runtime: .*mygroupnorm",
    ),
}


@pytest.mark.parametrize(("plant", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_in_a_packed_wheel_is_found(
    shipped: Project,
    wheel: Path,
    plant: Callable[[str, bytes], bytes],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not shipped.paths.data_manifest("group_norm").is_file():
        assert shipped.doit("data:group_norm").returncode == 0
    monkeypatch.setattr(run_unpacked, "TORCH_EXPORTERS", ("legacy",))  # the other takes 4 CPU s
    use = WheelRun(
        paths=shipped.paths,
        name="my_ops",
        operators=[load_operator(shipped.paths, "group_norm")],
        cells=[Cell(torch="2.13", exporter="legacy", opset=17, ort="1.31")],
        torch="2.13.0",
        folder=tmp_path,
    )
    with pytest.raises(DistError, match=message):
        run_unpacked.run(packed(wheel, plant), use)
