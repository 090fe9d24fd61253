"""The text of build.ninja. Finding compiler, linker, ninja and torch, with planted programs."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import ToolchainError
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.toolchain import find, ninja_file
from opmatrix.toolchain import find as toolchain
from opmatrix.toolchain.find import Toolchain, find_toolchain
from opmatrix.toolchain.ninja_file import build_ninja
from tests.support.raising import raising
from tests.support.toolchain import TOOLCHAIN

WITH_LEVELS = load_operator(Paths(Path(__file__).resolve().parents[2]), "group_norm").spec
SPEC = replace(WITH_LEVELS, cpu_levels=False)
LAYOUT = Paths(Path("/home/someone/project"))


def text(paths: Paths = LAYOUT, *, spec: OpSpec = SPEC, toolchain: Toolchain = TOOLCHAIN, debug: bool = False) -> str:
    return build_ninja(paths, spec, toolchain=toolchain, debug=debug).replace(" $\n    ", " ")


def test_the_file_names_every_output() -> None:
    built = [line.split()[1].rstrip(":") for line in text().splitlines() if line.startswith("build ")]
    libraries = ["stub/libtorch_cpu.so", "libgroup_norm_torch.so", "libgroup_norm_ort.so"]
    assert sorted(built) == sorted(["kernel.o", "torch.o", "ort.o", "ort_library.o", "runtime.o", *libraries])


def test_a_kernel_with_levels_is_compiled_for_each_and_joined() -> None:
    lines = text(spec=WITH_LEVELS).splitlines()
    built = {line.split()[1].rstrip(":"): line for line in lines if line.startswith("build ")}
    assert built["kernel.o"].startswith("build kernel.o: join kernel_v2.o kernel_v3.o kernel_v4.o")
    levels = [line for line in lines if "-DOPMATRIX_CPU_LEVEL=" in line]
    assert all(f"-march=x86-64-v{level}" in line for level, line in zip((2, 3, 4), levels, strict=True))
    assert "-march" not in text() and "objcopy" not in text(), "a kernel without levels pays nothing"
    assert "-fno-gnu-unique" not in text(spec=WITH_LEVELS, toolchain=replace(TOOLCHAIN, compiler=("clang++",)))


def test_an_operator_without_a_torch_library() -> None:
    lines = text(spec=replace(SPEC, torch=None)).splitlines()
    assert not [line for line in lines if line.startswith("build ") and "torch" in line]
    assert [line for line in lines if line.startswith("build libgroup_norm_ort.so")]


def test_a_composed_operator_links_the_objects_of_the_others() -> None:
    spec = replace(SPEC, name="both", uses=("one", "two"))
    built = [line for line in text(spec=spec).splitlines() if line.startswith("build ")]
    objects = "../one/kernel.o ../one/ort.o ../two/kernel.o ../two/ort.o ort_library.o runtime.o"
    assert f"build libboth_ort.so: library {objects} | " in built[-1]
    assert [line.split()[1].rstrip(":") for line in built] == ["ort_library.o", "runtime.o", "libboth_ort.so"]


def test_flags_that_are_there_and_those_that_no_kernel_gets() -> None:
    assert "builddir = .\n" in text() and "-MD " in text() and "-MMD" not in text()
    assert [flag for flag in ("-ffast-math", "-Ofast", "-march=native") if flag in text()] == []
    assert "-Og -g" in text(debug=True) and "-ffile-prefix-map" not in text(debug=True)


def test_another_compiler_changes_the_text_and_another_torch_does_not() -> None:
    assert text() == text(toolchain=replace(TOOLCHAIN, torch_version="2.15.0", torch_include=Path("/elsewhere")))
    assert "torch" not in TOOLCHAIN.identity
    assert text() != text(toolchain=replace(TOOLCHAIN, compiler=("/usr/bin/clang++",)))
    assert text() != text(toolchain=replace(TOOLCHAIN, linker=None))


def test_paths_are_escaped_for_ninja_and_the_shell() -> None:
    odd = ninja_file.places_ninja(Paths(Path("/home/a b: $c/ü'")), TOOLCHAIN, Path("/a b"))
    assert "\nroot = /home/a b: $$c/ü'\n" in odd and "build kernel.o: object ${root}/build/generated/" in text()
    assert """\nroot_quoted = '/home/a b: $$c/ü'"'"''\n""" in odd and "-I${root_quoted}/native" in text()
    assert "ort_include = '/a b'\n" in odd


def test_no_variable_is_a_keyword_of_ninja() -> None:
    """A project without headers of its own, as one outside this checkout, has variables for those of opmatrix."""
    places = ninja_file.places_ninja(LAYOUT, TOOLCHAIN, Path("/ort"))
    named = {line.partition(" = ")[0] for line in places.splitlines()}
    assert "root" in named and named.isdisjoint({"build", "rule", "pool", "default", "include", "subninja"})


def test_the_text_has_no_path_of_this_machine() -> None:
    """So the key of the compile step is the same in another folder, and on another machine."""
    other = replace(TOOLCHAIN, compiler=("/opt/bin/g++",))
    assert text() == text(Paths(Path("/srv/another place")), toolchain=other)
    assert TOOLCHAIN.identity == other.identity
    assert not re.search(r"(?<![\w}.])/(?!dev/null)\w", text()), "a path from the root"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for planted programs; torch counts as installed, and no ninja is next to this Python."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(toolchain, "find_torch", lambda: (tmp_path / "include", "2.13.0+cpu"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path / "bin"


def plant(folder: Path, *names: str, content: str = "#!/bin/sh\n") -> None:
    for name in names:
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)


def test_programs_on_the_path_are_found(folder: Path) -> None:
    """clang where there is no GCC; CXX may be a command; the ninja of the environment comes first."""
    plant(folder, "clang++", "ninja")
    found = find_toolchain({"PATH": str(folder)})
    assert found.compiler == (str(folder / "clang++"),) and found.linker is None
    plant(folder, "g++", "ccache", "ld.gold")
    found = find_toolchain({"PATH": str(folder)})
    assert found.compiler == (str(folder / "g++"),)
    assert (found.ninja, found.linker) == (str(folder / "ninja"), "gold")
    assert find_toolchain({"PATH": str(folder), "CXX": "ccache g++"}).compiler == (str(folder / "ccache"), "g++")
    plant(folder.parent, "ninja")
    assert find_toolchain({"PATH": str(folder)}).ninja == str(folder.parent / "ninja")
    assert find_toolchain({"PATH": str(folder), "NINJA": str(folder / "ninja")}).ninja == str(folder / "ninja")


@pytest.mark.parametrize("program", ["g++", "cc1plus", "as", "ld.gold", "libstdc++.so"])
def test_the_identity_changes_with_the_content_of_the_compiler_and_of_what_it_runs(folder: Path, program: str) -> None:
    """The command is only a driver: the others make objects and libraries."""
    (folder / "within").mkdir()
    plant(folder / "within", "cc1plus", "libstdc++.so")
    plant(folder, "ninja", "as", "ld.gold")
    plant(folder, "g++", content=f"#!/bin/sh\nf='{folder}/within/'${{1#*=}}\n[ -e $f ] && echo $f || echo ${{1#*=}}\n")
    environ = {"PATH": f"{folder}:/bin", "HOME": str(folder)}
    before = find_toolchain(environ).identity
    changed = next(path for path in (folder / program, folder / "within" / program) if path.exists())
    changed.touch()
    assert find_toolchain(environ).identity == before
    changed.write_text(changed.read_text() + "# upgraded\n")
    assert find_toolchain(environ).identity != before


def test_programs_are_read_again_only_when_their_marks_change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(folder, "g++", "ninja", "as")
    environ = {"PATH": f"{folder}:/bin", "HOME": str(folder)}
    before = find_toolchain(environ).identity
    with monkeypatch.context() as patched:
        patched.setattr(find, "sha256", lambda path: pytest.fail(f"{path} was read again"))
        assert find_toolchain(environ).identity == before
    (kept,) = (folder / ".cache/opmatrix/compilers").iterdir()
    for damaged in ("", "[]", '{"marks": {}, "digest": "0"}', '{"marks": {"a": 1}, "digest": 1}'):
        kept.write_text(damaged)
        assert find_toolchain(environ).identity == before


@pytest.mark.parametrize(
    ("planted", "environ", "message"),
    [
        (["ninja"], {}, "no C++ compiler (g++ or clang++) on PATH '{bin}'. Install one (Debian: apt install g++)"),
        (["ninja"], {"CXX": "icpx -x"}, "CXX is 'icpx -x', and 'icpx' is not a program on PATH '{bin}'"),
        (["g++", "ninja"], {"CXX": "g++ '"}, 'CXX is "g++ \'", which is not a command: No closing quotation. Set CXX'),
        (["g++"], {}, "ninja not found on PATH '{bin}'. Install it, or set NINJA to its path."),
        (["g++"], {"NINJA": "/nowhere"}, "NINJA is '/nowhere', which is not a program"),
    ],
)
def test_a_missing_tool_is_an_error(folder: Path, planted: list[str], environ: dict[str, str], message: str) -> None:
    plant(folder, *planted)
    with pytest.raises(ToolchainError) as caught:
        find_toolchain({"PATH": str(folder), **environ})
    assert message.format(bin=folder) in str(caught.value)


def test_torch_is_found_without_importing_it() -> None:
    include, version = toolchain.find_torch()
    assert (include / toolchain.TORCH_SHIM).is_file() and version


def test_finding_tools_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of doit does it. The first one asks the compiler for its programs."""
    find_toolchain(os.environ)
    for name in ("os.posix_spawn", "os.posix_spawnp", "os.fork", "subprocess.Popen"):
        monkeypatch.setattr(name, raising(AssertionError(name)))
    assert find_toolchain(os.environ).compiler
