"""The compile stage on copies of group_norm: what it builds, what it repeats, what it refuses, and its messages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opmatrix.basics import step_log
from opmatrix.basics.errors import CompileError
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.toolchain import compile, ninja_file, symbols
from opmatrix.toolchain.find import find_toolchain
from opmatrix.toolchain.ninja_file import MADE
from tests.support.building import build, compile_program, copy_project
from tests.support.projects import replace_in

pytestmark = pytest.mark.compile

NAME = "group_norm"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    paths = copy_project(tmp_path_factory.mktemp("built"))
    build(paths)
    return paths


@pytest.fixture
def paths(built: Paths, tmp_path: Path) -> Paths:
    """A copy of a built project, with its time stamps; its absolute paths make ninja build once more."""
    copy = Paths(tmp_path / "project")
    shutil.copytree(built.root, copy.root)
    build(copy)
    return copy


@pytest.fixture(scope="module")
def broken_often(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    paths = copy_project(tmp_path_factory.mktemp("broken"))
    replace_in(paths.kernel(NAME), "#include <cstdint>", "#include <algorithm>\n#include <cstdint>\n#include <vector>")
    build(paths)
    return paths


@pytest.fixture
def broken(broken_often: Paths) -> Iterator[Paths]:
    """A project whose kernel a test breaks; the next test has the kernel as it was."""
    kernel = broken_often.kernel(NAME)
    before = kernel.read_text()
    yield broken_often
    kernel.write_text(before)


def libraries(paths: Paths) -> tuple[Path, Path]:
    return paths.torch_library(NAME), paths.ort_library(NAME)


def outputs(paths: Paths) -> dict[str, tuple[bytes, int]]:
    """Return content and time stamp of all outputs of ninja."""
    files = [*paths.compile_folder(NAME).glob("*.o"), *libraries(paths)]
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


def contents(found: dict[str, tuple[bytes, int]]) -> dict[str, bytes]:
    return {name: content for name, (content, _) in found.items()}


def edit(paths: Paths) -> None:
    """Change what the kernel computes."""
    replace_in(paths.kernel(NAME), "* factor + bias", "* factor - bias")


def test_equal_content_gives_equal_bytes_in_any_folder(built: Paths, tmp_path: Path) -> None:
    other = copy_project(tmp_path / "a longer path, with blanks & ümläuts, $HOME and 'quotes'")
    build(other)
    assert [p.read_bytes() for p in libraries(built)] == [p.read_bytes() for p in libraries(other)]
    assert not [path for path in libraries(built) if str(built.root).encode() in path.read_bytes()]


def test_without_a_change_or_with_a_changed_comment_no_output_changes(paths: Paths) -> None:
    before = outputs(paths)
    build(paths)
    assert outputs(paths) == before
    for path in (paths.kernel(NAME), paths.root / "native/include/opmatrix/check.h"):
        path.write_text(f"// a comment, and so another line number for everything\n{path.read_text()}")
        build(paths)
        assert outputs(paths) == before, path


def test_a_kernel_edit_compiles_the_kernel_alone_and_is_seen_with_an_old_time_stamp(paths: Paths) -> None:
    """As after unpacking an archive; ninja alone would keep the old object."""
    before = outputs(paths)
    edit(paths)
    build(paths)
    after = outputs(paths)
    assert {name for name in after if after[name] != before[name]} == {"kernel.o", *(p.name for p in libraries(paths))}
    stamp = paths.kernel(NAME).stat()
    replace_in(paths.kernel(NAME), "* factor - bias", "* factor + bias")
    os.utime(paths.kernel(NAME), ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    build(paths)
    assert contents(outputs(paths)) == contents(before)


@pytest.mark.parametrize("name", [compile.FINGERPRINTS, compile.OTHERS, MADE])
def test_a_damaged_record_of_an_earlier_run_compiles_everything(paths: Paths, name: str) -> None:
    """A power failure may leave null bytes in what was written last."""
    before, path = outputs(paths), paths.compile_folder(NAME) / name
    path.write_bytes(b"\0" * 100)
    edit(paths)
    build(paths)
    after = outputs(paths)
    assert after["kernel.o"] != before["kernel.o"] and after.keys() == before.keys()


def test_damaged_compile_commands_of_another_operator_are_left_out(paths: Paths) -> None:
    other = paths.compile_folder("other") / compile.COMMANDS
    other.parent.mkdir()
    other.write_bytes(b"\0" * 100)
    own = paths.compile_folder(NAME) / compile.COMMANDS
    own.unlink()
    build(paths)
    assert json.loads((paths.build / compile.COMMANDS).read_text()) == json.loads(own.read_text())


def test_another_compiler_compiles_everything(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade in place: the same path with other content."""
    wrapper = tmp_path / "compiler"
    real = find_toolchain(os.environ).compiler[0]
    wrapper.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))
    build(paths)
    wrapper.write_text(f'#!/bin/sh\necho "$1" >> "{tmp_path}/calls"\nexec {real} "$@"\n')
    build(paths)
    calls = [first for first in (tmp_path / "calls").read_text().split() if not first.startswith(("-print-", "-E"))]
    assert len(calls) == 5 + 3  # objects and links, also of the stub; others ask where it searches


def test_a_compile_error_is_the_compilers_message_alone(broken: Paths) -> None:
    replace_in(broken.kernel(NAME), "const double offset = block.sum *", "const double offset = blok.sum *")
    line = next(n for n, text in enumerate(broken.kernel(NAME).read_text().splitlines(), 1) if "blok.sum *" in text)
    with pytest.raises(CompileError) as caught:
        build(broken)
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(f"native/group_norm/kernel.h:{line}:27: error: ") and "did you mean" in first
    assert "\x1b" not in first and f"{line} |     const double offset = blok.sum *" in rest[0] and len(rest) == 3


def test_colours_are_kept_for_a_terminal_and_compile_nothing_again(
    broken: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = outputs(broken)
    monkeypatch.setenv("FORCE_COLOR", "1")
    build(broken)
    assert outputs(broken) == before
    replace_in(broken.kernel(NAME), "const double offset = block.sum *", "const double offset = blok.sum *")
    with pytest.raises(CompileError, match=r"\x1b.*error: "):
        build(broken)
    monkeypatch.setenv("NO_COLOR", "1")
    with pytest.raises(CompileError) as caught:
        build(broken)
    assert "\x1b" not in str(caught.value)


SORT = "std::vector<const T*> p; struct Less {}; std::sort(p.begin(), p.end(), Less{});"


@pytest.mark.parametrize(
    ("old", "new", "shown", "most_lines"),
    [
        (
            "  double unit = 1;",
            f"  {SORT} double unit = 1;",
            r"\Anative/group_norm/kernel.h:\d+:\d+:   required from",
            8,
        ),
        ("float epsilon, TensorView", "float epsilon, int more, TensorView", "ops/group_norm/spec.py", 12),
    ],
    ids=["in the standard library", "in generated code"],
)
def test_an_error_is_short_and_begins_where_the_kernel_is_wrong(
    old: str, new: str, shown: str, most_lines: int, broken: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_in(broken.kernel(NAME), old, new)
    capsys.readouterr()
    with pytest.raises(CompileError, match=shown) as caught:
        build(broken)
    message, above = str(caught.value), capsys.readouterr().out
    assert len(message.splitlines()) <= most_lines < len(above.splitlines())
    assert not [text for text in ("FAILED", "ninja:", "-std=c++20", "mv ") if text in message or text in above]


def test_in_the_log_of_a_step_the_full_output_is_a_detail(
    broken: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(step_log.LOGGED, "1")
    replace_in(broken.kernel(NAME), "  double unit = 1;", "  double unit = x[0] | 1;")
    with pytest.raises(CompileError):
        build(broken)
    log = capsys.readouterr().out
    assert "# $ " in log and log.count("# ") > 5 and "error: " not in step_log.visible_lines(log)


def test_an_interrupted_build_is_repaired(paths: Paths) -> None:
    """A killed process leaves a temporary file, never a part of an output."""
    before = outputs(paths)
    (paths.compile_folder(NAME) / "kernel.o.new").write_bytes(b"half")
    (paths.compile_folder(NAME) / "torch.o").unlink()
    build(paths)
    assert contents(outputs(paths)) == contents(before)


def test_what_ninja_did_not_make_is_made_again(paths: Paths) -> None:
    """A foreign library, newer than its objects, and an object that lost its end and kept its time stamp: ninja alone
    finds nothing to do for either."""
    before = outputs(paths)
    torch, ort = libraries(paths)
    shutil.copy(ort, torch)
    damaged = paths.compile_folder(NAME) / "ort.o"
    damaged.write_bytes(before["ort.o"][0][:-100])
    os.utime(damaged, ns=(before["ort.o"][1],) * 2)
    build(paths)
    assert contents(outputs(paths)) == contents(before)
    assert outputs(paths)["kernel.o"] == before["kernel.o"], "what ninja made stays"


def test_an_edited_kernel_compiles_nothing_else(tmp_path: Path) -> None:
    """Not even right after the first build, which has recorded the headers."""
    paths = copy_project(tmp_path)

    def compiled() -> dict[str, str]:
        log = (paths.compile_folder(NAME) / ".ninja_log").read_text().splitlines()[1:]
        return {line.split("\t")[3]: line for line in log}

    build(paths)
    before = compiled()
    replace_in(paths.kernel(NAME), "if (x.numel() == 0) return;", "if (x.numel() <= 0) return;")
    build(paths)
    now = compiled()
    assert "kernel.o" in now and {o for o in now if o.endswith(".o") and now[o] != before[o]} == {"kernel.o"}


def test_the_debug_build_has_its_own_folder_and_debug_information(paths: Paths) -> None:
    before = outputs(paths)
    build(paths, debug=True)
    library = paths.torch_library(NAME, debug=True).read_bytes()
    assert b".debug_info" in library and str(paths.root).encode() in library
    assert outputs(paths) == before
    assert b".debug_info" not in libraries(paths)[0].read_bytes()


def test_editors_have_the_compile_commands(built: Paths) -> None:
    entries = json.loads((built.build / compile.COMMANDS).read_text())
    sources = ["kernel.cc", "ort.cc", "ort_library.cc", "runtime.cc", "torch.cc"]
    assert sorted(Path(e["file"]).name for e in entries) == sources
    assert all("&&" not in e["command"] and ".new" not in e["command"] for e in entries)


def test_the_libraries_pass_the_gate(built: Paths) -> None:
    torch, ort = map(symbols.read_symbols, libraries(built))
    assert torch.defined == {"opmatrix_error", symbols.LEVEL}
    assert ort.defined == {"RegisterCustomOps", symbols.LEVEL}
    functions = {name for name in torch.weak if "torch_" in name}
    assert len(functions & symbols.torch_shims(ninja_file.TORCH_TARGET)) > 20
    assert functions <= symbols.torch_shims(ninja_file.TORCH_TARGET) | symbols.torch_shims("newer")
    assert not torch.undefined and not ort.undefined
    assert "libtorch_cpu.so" in torch.needed and not [n for n in ort.needed if "torch" in n]


def test_the_torch_library_loads_only_with_torch_in_the_process(built: Paths) -> None:
    """In a new process: another test of this one may have imported torch."""
    code = f"import ctypes; ctypes.CDLL({str(libraries(built)[0])!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "OSError: libtorch_cpu.so" in done.stderr


@pytest.mark.parametrize("library", [0, 1])
def test_a_library_that_older_systems_cannot_load_is_refused(
    library: int, built: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it were compiled on a system newer than the oldest supported one."""
    path = libraries(built)[library]
    check = (lambda p: symbols.check_torch_library(p, target="2.9"), symbols.check_ort_library)[library]
    check(path)
    needed = symbols.newest_versions(symbols.read_symbols(path).versions)
    assert all(needed[kind] <= ceiling for kind, ceiling in symbols.NEWEST_SYMBOL_VERSIONS.items())
    monkeypatch.setattr(symbols, "NEWEST_SYMBOL_VERSIONS", {"GLIBC": (2, 2)})
    with pytest.raises(
        CompileError, match=rf"{path.name} needs GLIBC_{symbols.version_text(needed['GLIBC'])}, newer than"
    ):
        check(path)


def test_a_library_for_one_torch_is_refused_where_one_serves_many(built: Paths) -> None:
    operator = load_operator(built, NAME)
    with pytest.raises(CompileError, match=r"one library serves torch 2\.9 and newer\. Leave out --torch-root"):
        compile.run(built, operator, torch=Path(sys.prefix))


def test_a_symbol_beyond_the_target_is_refused(paths: Paths) -> None:
    shims = paths.binding / "stable/torch_shims.h"
    replace_in(shims, "[[gnu::weak]] AOTITorchError torch_parallel_for", "AOTITorchError torch_parallel_for")
    replace_in(paths.binding / "stable/torch.h", "if (torch_parallel_for == nullptr) return", "if (end < begin) return")
    with pytest.raises(CompileError, match=r"needs 'torch_parallel_for', which torch 2\.9 does not export"):
        build(paths)


def test_an_older_torch_has_a_message(built: Paths, tmp_path: Path) -> None:
    """For programs that load the library directly: the loader would name a symbol, and no version."""
    without = tmp_path / "libtorch_cpu.so"
    subprocess.run(["g++", "-shared", "-x", "c", "/dev/null", "-o", without], check=True)
    program = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.opmatrix_error.restype = ctypes.c_char_p
print(library.opmatrix_error().decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, libraries(built)[0]],
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "custom_group_norm: needs torch 2.9 or newer\n", done.stderr
    assert done.stderr == "opmatrix: mynamespace::custom_group_norm: needs torch 2.9 or newer\n"


@pytest.mark.parametrize(("script", "symbol"), [("torch.map", "opmatrix_error"), ("ort.map", "RegisterCustomOps")])
def test_an_additional_or_a_missing_exported_symbol_is_refused(paths: Paths, script: str, symbol: str) -> None:
    replace_in(paths.binding / script, f"global: {symbol}; ", f"global: {symbol}; _ZTI*; ")
    error = paths.binding / "kernel_error.h"
    replace_in(error, "class Error :", 'class [[gnu::visibility("default")]] Error :')
    with pytest.raises(CompileError, match=rf"shows '_ZTIN8opmatrix5ErrorE'; it may show '{symbol}' alone"):
        build(paths)
    replace_in(paths.binding / script, f"global: {symbol}; _ZTI*; ", f"global: {symbol[:-1]}; ")
    with pytest.raises(CompileError, match=f"does not show '{symbol}'"):
        build(paths)


def test_the_declared_shims_match_the_installed_torch(tmp_path: Path) -> None:
    """A declaration that differs from torch's own does not compile together with it."""
    include = find_toolchain(os.environ).torch_include
    headers = [
        "csrc/inductor/aoti_torch/c/shim.h",
        "csrc/inductor/aoti_torch/generated/c_shim_aten.h",
        "csrc/stable/c/shim.h",
    ]
    lines = [*(f"#include <torch/{h}>" for h in headers), '#include "torch_shims.h"', "int main() {}"]
    compile_program("\n".join(lines), tmp_path, "-isystem", str(include), "-fsyntax-only")


def test_an_older_onnx_runtime_has_a_message(built: Paths) -> None:
    """Its GetApi returns null for the version that the library needs."""
    program = """
import ctypes, sys
api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda version: None)
running = ctypes.create_string_buffer(b"1.15.1")
version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(running))
base = (ctypes.c_void_p * 2)(*(ctypes.cast(f, ctypes.c_void_p).value for f in (api, version)))
ctypes.CDLL(sys.argv[1]).RegisterCustomOps(None, ctypes.byref(base))
"""
    done = subprocess.run([sys.executable, "-c", program, str(libraries(built)[1])], capture_output=True, text=True)
    said = "opmatrix: this library needs ONNX Runtime 1.16 or newer, and was loaded by 1.15.1\n"
    assert (done.returncode, done.stderr) == (0, said)
