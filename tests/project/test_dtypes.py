"""The table of dtypes: how a probe's result is compared with it, and what it says in this environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from opmatrix.declaration.validation.fields import WHY_NO_DTYPE
from opmatrix.project import dtypes
from opmatrix.project.cells import ORT, TORCH
from opmatrix.project.dtypes import DTYPES, NAMES, SINCE, Column, carries, differences, why_not_written
from opmatrix.spec import DType
from tests.support.projects import ROOT


def declared(version: str, *columns: Column) -> dict[str, dict[Column, str]]:
    """Return the probe's result for a version that agrees with the table."""
    return {d: {c: "" if carries(c, d, version) else "it raised" for c in columns} for d in SINCE}


def test_the_table_has_each_dtype_and_versions_of_the_matrix() -> None:
    """Torch, an exporter and ONNX Runtime carry each declared dtype, but those for operators of ONNX alone. They carry
    none that is refused."""
    assert {*SINCE} == {*DTYPES} | {*WHY_NO_DTYPE} and not {*DTYPES} & {*WHY_NO_DTYPE}
    assert {*NAMES} == {*get_args(Column)}
    for since in SINCE.values():
        for column, version in since.items():
            assert version in (ORT if column in ("node", "ort") else TORCH)
    whole = {d for d, s in SINCE.items() if {"torch", "ort"} <= {*s} and {"legacy", "dynamo"} & {*s}}
    assert whole == {*get_args(DType)} - {"string", "int4", "uint4"}


def test_each_difference_is_named() -> None:
    assert all(differences(declared(v, "torch", "stable", "legacy", "dynamo"), version=v) == [] for v in TORCH)
    assert all(differences(declared(v, "node", "ort"), version=v) == [] for v in ORT)
    found = declared("2.13", "legacy") | declared("1.31", "ort")
    found["int8"]["ort"], found["uint16"] = "type 3 is not supported", {"legacy": ""}
    assert differences(found, version="2.13") == [
        "ONNX Runtime, 2.13: int8 is not supported: type 3 is not supported; declared: from 1.16 on",
        "legacy exporter, 2.13: uint16 is supported; declared: nowhere",
    ]
    assert differences({"float8_e5m2": {"torch": ""}}, version="2.0")[0].endswith("is supported; declared: from 2.6 on")


def test_what_an_exporter_does_not_write() -> None:
    assert why_not_written("legacy", ["float32", "uint16", "uint16", "uint64"], "2.13") == (
        "the legacy exporter of torch 2.13 writes no uint16, uint64"
    )
    assert why_not_written("legacy", ["float8_e5m2"], "2.0").endswith("of torch 2.0 writes no float8_e5m2")
    assert why_not_written("dynamo", ["uint16", "float8_e5m2"], "2.13") == ""
    assert why_not_written("node", ["uint16"], "") == ""


# In a process of its own: torch keeps the operators of a library.
MEASURED = """
import json, sys
from pathlib import Path
from opmatrix.export import probe
from opmatrix.project.dtypes import differences
from opmatrix.project.paths import Paths
from opmatrix.torch_ops.call import torch_minor

found = probe.measure_dtypes(Paths(Path(sys.argv[1])))
print(json.dumps([found, differences(found, version=torch_minor())]))
"""


def measured(root: Path) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return what the probe of torch finds with the binding's headers of a folder, and how it differs."""
    done = subprocess.run([sys.executable, "-c", MEASURED, root], capture_output=True, text=True, check=True)
    found, differ = json.loads(done.stdout.splitlines()[-1])
    return found, differ


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.deep
def test_the_table_is_what_this_torch_does() -> None:
    found, differ = measured(ROOT)
    assert differ == []
    assert {*found} == {*SINCE} and "copy_" in found["int4"]["torch"] and "UInt16" in found["uint16"]["legacy"]


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("header", "line", "column"),
    [
        ("classic/torch.h", "{at::kBFloat16, DType::bfloat16},", "torch, classic binding"),
        ("stable/torch.h", "{DType::bfloat16, aoti_torch_dtype_bfloat16()},", "torch, stable ABI"),
    ],
)
@pytest.mark.deep
def test_a_binding_that_lacks_a_dtype_is_a_difference(tmp_path: Path, header: str, line: str, column: str) -> None:
    shutil.copytree(ROOT / "native/binding", tmp_path / "native/binding")
    path = tmp_path / "native/binding" / header
    text = path.read_text()
    path.write_text(text.replace(line, ""))
    assert path.read_text() != text
    _, (difference,) = measured(tmp_path)
    assert difference.startswith(f"{column}, ")
    assert "bfloat16 is not supported: RuntimeError: opmatrix: " in difference


@pytest.mark.ort
@pytest.mark.compile
def test_the_table_is_what_this_onnx_runtime_does() -> None:
    import onnxruntime

    from opmatrix.basics.version import minor
    from opmatrix.ort_checks import probe

    found = probe.measure()
    assert differences(found, version=minor(onnxruntime.__version__)) == []
    assert {*found} == {*SINCE} and found["complex64"]["ort"] == "tensor type 14 is not supported"


def test_the_how_to_links_the_table() -> None:
    for page in ("docs/how-to/another-dtype.md", "docs/comparison.md", "docs/matrix.md"):
        assert "reference/dtypes.md" in (ROOT / page).read_text(), page
    assert "reference/dtypes" in (ROOT / "docs/index.md").read_text() and dtypes.SINCE
