"""Finding compiler, linker, ninja and torch, with planted programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from opmatrix.basics.errors import ToolchainError
from opmatrix.toolchain import find
from opmatrix.toolchain import find as toolchain
from opmatrix.toolchain.find import find_toolchain


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
    plant(folder, "g++", "clang++", "ninja", "ld.gold")
    found = find_toolchain({"PATH": str(folder)})
    assert found.compiler == (str(folder / "g++"),)
    assert (found.ninja, found.linker) == (str(folder / "ninja"), "gold")


def test_clang_is_found_where_there_is_no_gcc(folder: Path) -> None:
    plant(folder, "clang++", "ninja")
    found = find_toolchain({"PATH": str(folder)})
    assert found.compiler == (str(folder / "clang++"),) and found.linker is None


def test_cxx_may_be_a_command(folder: Path) -> None:
    plant(folder, "ccache", "g++", "ninja")
    assert find_toolchain({"PATH": str(folder), "CXX": "ccache g++"}).compiler == (str(folder / "ccache"), "g++")


def test_the_ninja_of_the_environment_comes_first(folder: Path) -> None:
    plant(folder, "g++", "ninja")
    plant(folder.parent, "ninja")
    assert find_toolchain({"PATH": str(folder)}).ninja == str(folder.parent / "ninja")
    assert find_toolchain({"PATH": str(folder), "NINJA": str(folder / "ninja")}).ninja == str(folder / "ninja")


def test_the_identity_changes_with_the_content(folder: Path) -> None:
    plant(folder, "g++", "ninja")
    environ = {"PATH": str(folder)}
    before = find_toolchain(environ).identity
    (folder / "g++").touch()
    assert find_toolchain(environ).identity == before
    plant(folder, "g++", content="#!/bin/sh\n# upgraded\n")
    assert find_toolchain(environ).identity != before


@pytest.mark.parametrize("program", ["cc1plus", "as", "ld.gold", "libstdc++.so"])
def test_the_identity_changes_with_what_the_compiler_runs(folder: Path, program: str) -> None:
    """The command is only a driver: these make objects and libraries."""
    (folder / "within").mkdir()
    plant(folder / "within", "cc1plus", "libstdc++.so")
    plant(folder, "ninja", "as", "ld.gold")
    plant(folder, "g++", content=f"#!/bin/sh\nf='{folder}/within/'${{1#*=}}\n[ -e $f ] && echo $f || echo ${{1#*=}}\n")
    environ = {"PATH": f"{folder}:/bin", "HOME": str(folder)}
    before = find_toolchain(environ).identity
    changed = next(path for path in (folder / program, folder / "within" / program) if path.exists())
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

    def refused(*arguments: object, **options: object) -> None:
        raise AssertionError(arguments)

    for name in ("posix_spawn", "posix_spawnp", "fork"):
        monkeypatch.setattr(os, name, refused)
    monkeypatch.setattr("subprocess.Popen", refused)
    assert find_toolchain(os.environ).compiler
