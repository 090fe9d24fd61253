"""Finding a torch with the C++ headers of a binding, and the compiler flags of its library.
opmatrix.toolchain.ort_headers: the headers in opmatrix, and which others are refused. Reading ELF tables, and the
lists of torch's symbols. test_compile.py tests the gate with real libraries.
"""

from __future__ import annotations

import _ctypes
import itertools
import re
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from opmatrix.basics.errors import CompileError, ToolchainError
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import is_classic, stable_abi_since
from opmatrix.spec import Attribute, Input, OpSpec
from opmatrix.toolchain import headers, ort_headers, symbols
from opmatrix.toolchain.find import Toolchain
from opmatrix.toolchain.headers import TorchBuild, find_torch_build
from opmatrix.toolchain.ninja_file import cpp_abi_ninja, places_ninja
from opmatrix.toolchain.ort_headers import C_API, INCLUDED, OrtHeaders, find_headers
from tests.support.toolchain import TOOLCHAIN
from tests.toolchain.test_ninja_file import LAYOUT

SPEC = load_operator(Paths(Path(__file__).resolve().parents[2]), "group_norm").spec
OLD = (True, False)  # whether libc10.so exports the old and the new name of std::string


def places(torch: TorchBuild, *, toolchain: Toolchain = TOOLCHAIN) -> str:
    return places_ninja(LAYOUT, toolchain, Path("/ort"), torch=torch)


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed torch, whose libtorch_cpu.so needs an OpenMP in the same folder."""
    folder = tmp_path / "lib/python3.11/site-packages/torch"
    (folder / "include/torch").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "include/torch/library.h").touch()
    for name in ("libc10.so", "libtorch_cpu.so", "libgomp-a34b.so.1"):
        (folder / "lib" / name).touch()
    (folder / "version.py").write_text("from typing import Optional\n\n__version__ = '2.6.0+cu124'\ndebug = False\n")
    monkeypatch.setattr(headers, "has_symbol_prefix", lambda path, *names: OLD)
    monkeypatch.setattr(headers, "needed_libraries", lambda path: ("libc.so.6", "libgomp-a34b.so.1"))
    return folder


@pytest.mark.parametrize("up", range(5))
def test_any_folder_of_its_environment_finds_torch(torch: Path, up: int) -> None:
    place = [torch, *torch.parents][up]
    if place.name in ("lib", "python3.11"):  # neither an environment nor a folder of Python
        with pytest.raises(ToolchainError, match=r"no torch in '.*'\. Give the folder of an environment that has"):
            find_torch_build(place)
        return
    found = find_torch_build(place)
    assert (found.version, found.minor, found.cxx11_abi) == ("2.6.0+cu124", "2.6", False)
    assert found.identity == "2.6.0+cu124 with the old C++ ABI"
    assert [p.name for p in found.libraries] == ["libtorch_cpu.so", "libc10.so", "libgomp-a34b.so.1"]


@pytest.mark.parametrize("shown", [(True, True), (False, False)])
def test_a_library_without_a_known_abi(torch: Path, monkeypatch: pytest.MonkeyPatch, shown: tuple[bool, bool]) -> None:
    monkeypatch.setattr(headers, "has_symbol_prefix", lambda path, *names: shown)
    with pytest.raises(ToolchainError, match=r"libc10\.so' does not show which C\+\+ ABI torch 2\.6\.0\+cu124"):
        find_torch_build(torch)


def test_an_incomplete_torch(torch: Path) -> None:
    """But an OpenMP outside its folder is not used: the system's would be a second one, with its own threads."""
    (torch / "lib/libgomp-a34b.so.1").unlink()
    assert find_torch_build(torch).openmp is None
    for missing in ("lib/libtorch_cpu.so", "lib/libc10.so", "include/torch/library.h"):
        (torch / missing).rename(torch / "moved")
        with pytest.raises(ToolchainError, match=rf"torch 2\.6\.0\+cu124 has no '.*{missing}'\. Reinstall torch"):
            find_torch_build(torch)
        (torch / "moved").rename(torch / missing)


def test_the_standard_of_a_version() -> None:
    for version, standard in {"1.13.1": 17, "2.9.1": 17, "2.15.0": 20, "3.0.0": 20}.items():
        torch = TorchBuild(version=version, include=Path("/t/include"), openmp=None, cxx11_abi=True)
        assert torch.standard == f"c++{standard}" and f"classic = -std=c++{standard}\n" in places(torch)


def test_one_file_has_all_settings_of_one_torch() -> None:
    torch = TorchBuild(version="2.0.1", include=Path("/t/include"), openmp=Path("/t/lib/gomp"), cxx11_abi=False)
    text = places(torch)
    assert "classic = -std=c++17 -fopenmp\n" in text and "-D_GLIBCXX_USE_CXX11_ABI=0 " in text
    assert "torch_libraries = /t/lib/libtorch_cpu.so /t/lib/libc10.so /t/lib/gomp\n" in text
    assert "-fopenmp" not in places(torch, toolchain=replace(TOOLCHAIN, compiler=("clang++",))), (
        "of another compiler than GCC"
    )
    assert "-fopenmp" not in places(replace(torch, openmp=None))
    assert "/t/" not in cpp_abi_ninja(LAYOUT, SPEC, toolchain=TOOLCHAIN)


def test_the_kernel_is_not_compiled_again_and_a_handwritten_binding_for_one_torch() -> None:
    lines = cpp_abi_ninja(LAYOUT, SPEC, toolchain=TOOLCHAIN).replace(" $\n    ", " ").splitlines()
    built = [line for line in lines if line.startswith("build ")]
    assert [line.split()[1] for line in built] == ["torch.o:", "libgroup_norm_torch.so:"]
    assert "library torch.o ../kernel.o ../runtime.o |" in built[1]
    assert "-I${bindings_quoted}/classic " in "\n".join(lines)
    text = cpp_abi_ninja(LAYOUT, SPEC, toolchain=TOOLCHAIN, written={"kernel.h", "torch.cc"})
    assert "native/group_norm/torch.cc" in text and "own_torch.map" in text and "binding/classic" not in text
    assert "kernel.o" not in cpp_abi_ninja(LAYOUT, SPEC, toolchain=TOOLCHAIN, written={"torch.cc", "ort.cc"})


def with_parts(*, variadic: bool = False, attribute: Attribute | None = None) -> OpSpec:
    inputs = (*SPEC.inputs, *([Input(name="more", type="T", variadic=True)] if variadic else []))
    return replace(SPEC, inputs=inputs, attributes=(*SPEC.attributes, *([attribute] if attribute else [])))


@pytest.mark.parametrize(
    ("spec", "since"),
    [
        (SPEC, "2.9"),
        (with_parts(variadic=True), "2.10"),
        (with_parts(attribute=Attribute(name="mode", kind="string", default="a")), "2.10"),
        (with_parts(attribute=Attribute(name="axes", kind="ints", default=(1,))), "2.10"),
        (with_parts(attribute=Attribute(name="strict", kind="bool", default=True)), "2.9"),
    ],
)
def test_which_torch_needs_its_own_library(spec: OpSpec, since: str) -> None:
    assert stable_abi_since(spec) == since
    assert is_classic(spec, "2.6") and is_classic(spec, "1.13") and not is_classic(spec, "2.10")
    assert is_classic(spec, "2.9") is (since == "2.10")
    assert not is_classic(replace(spec, torch=None), "1.13")


def test_which_compiler_has_the_openmp_of_gcc() -> None:
    gcc = (("/usr/bin/g++",), ("ccache", "/usr/bin/g++-12"), ("/usr/bin/x86_64-linux-gnu-g++",), ("/usr/bin/c++",))
    assert all(replace(TOOLCHAIN, compiler=compiler).is_gcc for compiler in gcc)
    assert not any(replace(TOOLCHAIN, compiler=(f"/usr/bin/clang++{end}",)).is_gcc for end in ("", "-15"))


ROW = re.compile(r"\| (?P<file>\S+) \| MIT \| (?P<digest>[0-9a-f]{64}) \|")


def header(folder: Path, version: int, more: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / C_API).write_text(f"#pragma once\n#define ORT_API_VERSION {version}\n{more}")
    return folder


def identity(folder: Path) -> str:
    return find_headers({"OPMATRIX_ORT_INCLUDE": str(folder)}).identity


def test_the_files_are_those_of_the_table() -> None:
    text = (INCLUDED / "README.md").read_text()
    rows = [found for line in text.splitlines() if (found := ROW.fullmatch(line))]
    files = [path for path in INCLUDED.iterdir() if path.name != "README.md"]
    assert {row["file"]: row["digest"] for row in rows} == {p.name: sha256(p.read_bytes()).hexdigest() for p in files}
    assert {*ort_headers.files(INCLUDED), INCLUDED / "LICENSE"} == {*files}
    assert f"ONNX Runtime {ort_headers.VERSION}," in text


def test_the_headers_in_opmatrix_are_complete() -> None:
    found = find_headers({})
    assert found == OrtHeaders(path=INCLUDED, version=ort_headers.VERSION)
    assert found.version == f"1.{ort_headers.api_version(INCLUDED)}.0"
    headers = ort_headers.files(INCLUDED)
    included = {name for path in headers for name in re.findall(r'#include "(.*)"', path.read_text())}
    assert C_API in included and included <= {path.name for path in headers}


def test_headers_that_a_setting_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ToolchainError, match=r"which contains no usable onnxruntime_c_api\.h"):
            identity(folder)
    with pytest.raises(ToolchainError, match="API version 15; 18 or newer is needed"):
        identity(header(tmp_path / "old", 15))
    folder = header(tmp_path / "include", 24)
    assert find_headers({"OPMATRIX_ORT_INCLUDE": str(folder)}) == OrtHeaders(path=folder, version="1.24")
    monkeypatch.chdir(tmp_path)
    assert find_headers({"OPMATRIX_ORT_INCLUDE": "include"}).path == folder
    one, two, edited = (header(tmp_path / name, 21, "// more\n" * (name == "edited")) for name in ("1", "2", "edited"))
    assert identity(one) == identity(two) != identity(edited)
    (two / "onnxruntime_float16.h").touch()
    assert identity(one) != identity(two)


def test_a_library_of_python() -> None:
    path = Path(_ctypes.__file__)
    found = symbols.read_symbols(path)
    assert "PyInit__ctypes" in found.defined
    assert "PyObject_GetAttr" in found.undefined  # Python's symbols have no version
    assert "free" not in found.undefined  # glibc's have versions
    for needed in (found.needed, symbols.needed_libraries(path)):
        assert any(name.startswith("libc.so") for name in needed)
    assert symbols.has_symbol_prefix(path, b"PyInit__cty", b"yInit__ctypes") == (True, False)
    versions = symbols.newest_versions(found.versions)
    assert versions["GLIBC"] >= (2, 2, 5) and symbols.version_text((2, 14)) == "2.14"
    assert symbols.newest_versions(["GLIBC_2.2.5", "GLIBC_2.14", "GLIBC_2.3.4", "GLIBC_PRIVATE"]) == {"GLIBC": (2, 14)}


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


def test_a_gate_imports_no_framework() -> None:
    """It runs after each compile."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom opmatrix.toolchain import symbols\n"
        "symbols.read_symbols(Path(sys.argv[1]))\n"
        "assert not {'torch', 'onnx', 'onnxruntime', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, _ctypes.__file__], check=True)
