"""Reading ELF tables, and the lists of torch's symbols. test_compile.py tests the gate with real libraries."""

from __future__ import annotations

import _ctypes
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.basics.errors import CompileError
from opmatrix.toolchain import symbols


def test_a_library_of_python() -> None:
    found = symbols.read_symbols(Path(_ctypes.__file__))
    assert "PyInit__ctypes" in found.defined
    assert "PyObject_GetAttr" in found.undefined  # Python's symbols have no version
    assert "free" not in found.undefined  # glibc's have versions
    assert any(n.startswith("libc.so") for n in found.needed)


WHOLE = Path(_ctypes.__file__).read_bytes()
BROKEN = {
    "empty": b"",
    "text": b"not a library at all",
    "header": WHOLE[:6],
    "half": WHOLE[: len(WHOLE) // 2],
    "32 bits": WHOLE[:4] + b"\x01" + WHOLE[5:],
    "big-endian": WHOLE[:5] + b"\x02" + WHOLE[6:],
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_no_library(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(content)
    with pytest.raises(CompileError, match=r"x\.so' is no 64-bit ELF library"):
        symbols.read_symbols(tmp_path / "x.so")


def test_no_shim_is_ever_removed() -> None:
    """Otherwise "the target and everything newer" would be wrong."""
    versions = ["2.8", "2.9", "2.10", "2.12", "2.13", "2.15"]
    for older, newer in itertools.pairwise(versions):
        assert symbols.torch_shims(older) < symbols.torch_shims(newer)


def test_the_newest_versions_that_a_library_requires() -> None:
    versions = symbols.newest_versions(symbols.read_symbols(Path(_ctypes.__file__)).versions)
    assert versions["GLIBC"] >= (2, 2, 5) and symbols.version_text((2, 14)) == "2.14"
    assert symbols.newest_versions(["GLIBC_2.2.5", "GLIBC_2.14", "GLIBC_2.3.4", "GLIBC_PRIVATE"]) == {"GLIBC": (2, 14)}


def test_a_gate_imports_no_framework() -> None:
    """It runs after each compile."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom opmatrix.toolchain import symbols\n"
        "symbols.read_symbols(Path(sys.argv[1]))\n"
        "assert not {'torch', 'onnx', 'onnxruntime', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, _ctypes.__file__], check=True)
