"""A CPython that no machine here has: its packages resolve, and their libraries have what opmatrix's link against.

Nothing is loaded, so its cells are not measured; docs/matrix.md says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from opmatrix.environments.pip_install import TORCH_INDEX
from opmatrix.project.cells import ORT, TORCH
from opmatrix.toolchain.symbols import read_symbols, torch_shims
from tests.newest.installation import pins
from tests.newest.test_newest import STRICT, judge, newer
from tests.support.projects import ROOT

PYTHON = "3.14"
LOCKS = [*(f"torch{v}" for v, row in TORCH.items() if row.python == PYTHON),
         *(f"ort{v}" for v, row in ORT.items() if row.python == PYTHON), "main"]  # fmt: skip

pytestmark = pytest.mark.newest


def pip(command: str, *arguments: str | Path) -> str:
    """Run pip for that CPython; return its error, "" for none."""
    fixed = ["--python-version", PYTHON, "--only-binary", ":all:", "--no-deps", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, *fixed, *map(str, arguments)], capture_output=True, text=True
    )
    return (done.stderr or f"exit code {done.returncode}") if done.returncode else ""


@pytest.mark.parametrize("lock", LOCKS)
def test_the_pins_have_wheels(lock: str, tmp_path: Path) -> None:
    dry = ["--dry-run", "--require-hashes", "--target", tmp_path]
    assert pip("install", *dry, "-r", ROOT / f"requirements/{lock}.txt") == ""


def lacking(requirement: str, folder: Path, new: list[str]) -> str:
    """Return why an ONNX Runtime cannot be used, or "". `new` gets its name if it is newer than the pinned one."""
    if error := pip("download", "--dest", folder, requirement):
        return error
    (wheel,) = folder.glob("*.whl")
    new += newer({"onnxruntime": wheel.name.split("-")[1]}, pins())
    named = f"onnxruntime/capi/onnxruntime_pybind11_state.cpython-{PYTHON.replace('.', '')}-x86_64-linux-gnu.so"
    return "" if named in zipfile.ZipFile(wheel).namelist() else f"{wheel.name} has no {named}"


def test_onnx_runtime_has_the_library(tmp_path: Path) -> None:
    new: list[str] = []
    newest = lacking("onnxruntime", tmp_path / "newest", new)
    pinned = f"onnxruntime=={pins()['onnxruntime']}"
    judge(newest, new, lambda: lacking(pinned, tmp_path / "pinned", []), strict=STRICT)


@pytest.mark.skipif(not STRICT, reason="downloads 900 MB: `tox run -m nightly`")
def test_torch_exports_what_libraries_need(tmp_path: Path) -> None:
    newest = [*TORCH][-1]
    index = os.environ.get("OPMATRIX_TORCH_INDEX", TORCH_INDEX)
    assert pip("download", "--dest", tmp_path, *(["--index-url", index] if index else []), f"torch=={newest}.*") == ""
    (wheel,) = tmp_path.glob("*.whl")
    library = zipfile.ZipFile(wheel).extract("torch/lib/libtorch_cpu.so", tmp_path)
    exported = read_symbols(Path(library)).defined
    assert torch_shims("2.9") and torch_shims("2.9") <= exported and torch_shims(newest) <= exported
