"""The text of build.ninja."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.toolchain import ninja_file
from opmatrix.toolchain.find import Toolchain
from opmatrix.toolchain.ninja_file import build_ninja
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
    assert ["-march=x86-64-v2" in levels[0], "-march=x86-64-v3" in levels[1], "-march=x86-64-v4" in levels[2]] == [
        True
    ] * 3
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


def test_the_build_log_and_the_dependencies() -> None:
    assert "builddir = .\n" in text() and "-MD " in text() and "-MMD" not in text()


@pytest.mark.parametrize("flag", ["-ffast-math", "-Ofast", "-march=native"])
def test_flags_that_no_kernel_gets(flag: str) -> None:
    assert flag not in text()


def test_the_libraries_do_not_depend_on_torch() -> None:
    assert text() == text(toolchain=replace(TOOLCHAIN, torch_version="2.15.0", torch_include=Path("/elsewhere")))
    assert "torch" not in TOOLCHAIN.identity


def test_another_compiler_changes_the_text() -> None:
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


def test_the_debug_build() -> None:
    assert "-Og -g" in text(debug=True) and "-ffile-prefix-map" not in text(debug=True)
