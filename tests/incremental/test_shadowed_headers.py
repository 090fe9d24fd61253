"""A header that comes to shadow one that was read is seen, wherever it appears in the search path."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from opmatrix.toolchain.compile import lacked, of_compiler
from tests.incremental.real import KERNEL, RealProject
from tests.support.projects import write_files

ONE, TWO = (f"inline constexpr double kVendor = {value};\n" for value in (1, 2))


def real_steps(test: Callable[..., None]) -> Callable[..., None]:
    for mark in (pytest.mark.incremental, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow):
        test = mark(test)
    return test


@pytest.fixture
def search(real: RealProject, tmp_path: Path) -> Iterator[Path]:
    """Three folders of the compiler's search path: `first`, `second`, `third`; a kernel includes <vendor/value.h> and
    <other.h> of the third."""
    kernel = (real.root / KERNEL).read_text()
    real.passes("compile")
    real.replace(KERNEL, "#pragma once\n", "#pragma once\n#include <other.h>\n")
    real.replace(KERNEL, "return {mean + rest", "return {mean * kVendor + rest")
    (tmp_path / "second").mkdir()
    write_files(tmp_path / "third", {"other.h": "#include <vendor/value.h>\n", "vendor/value.h": ONE})
    yield tmp_path
    (real.root / KERNEL).write_text(kernel)
    shutil.rmtree(real.root / "native/vendor", ignore_errors=True)


@pytest.fixture
def environment(search: Path) -> Mapping[str, str]:
    return {"CPATH": os.pathsep.join(str(search / one) for one in ("first", "second", "third"))}


# At 71b51ad8: each was up to date, with the old value.
@real_steps
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param("second/vendor/value.h", "second has vendor", id="in_a_new_folder"),
        pytest.param("second/other.h", "second has other.h", id="of_a_header_that_includes_it"),
        pytest.param("first/vendor/value.h", "first has vendor", id="in_a_folder_that_was_missing"),
        pytest.param("native/vendor/value.h", "native has vendor", id="in_the_project"),
        pytest.param("second/limits", "second has limits", id="of_the_standard_library"),
        pytest.param("second/vendor/other.h", "second has vendor", id="of_its_folder_alone"),
        pytest.param("second/unrelated.h", "", id="of_none"),
    ],
)
def test_a_header_that_appears_earlier(
    real: RealProject, search: Path, environment: Mapping[str, str], name: str, shown: str
) -> None:
    assert "compile" in real.ran(real.run("compile", **environment))
    assert real.ran(real.run("compile", **environment)) == set()
    before = real.paths.ort_library("group_norm").read_bytes()
    path = (real.root if name.startswith("native/") else search) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#include_next <limits>\n{TWO[:0]}" if name.endswith("limits") else TWO)
    said = real.run("why", "compile", **environment).stdout
    assert (f"{shown}, found in place of a header that was read" in said) == bool(shown), said
    assert real.ran(real.run("compile", **environment)) == ({"compile"} if shown else set())
    same = shown == "" or name.endswith("limits") or name == "second/vendor/other.h"
    assert (real.paths.ort_library("group_norm").read_bytes() == before) == same
    assert real.ran(real.run("compile", **environment)) == set()


@real_steps
def test_a_header_of_the_system_is_replaced(real: RealProject, search: Path, environment: Mapping[str, str]) -> None:
    """As a package upgrade does it: with the time stamp of the day on which the package was built."""
    header = search / "third/vendor/value.h"
    assert "compile" in real.ran(real.run("compile", **environment))
    assert real.ran(real.run("compile", **environment)) == set()
    before = real.paths.ort_library("group_norm").read_bytes()
    header.write_text(TWO)
    os.utime(header, (1, 1))
    assert f"compile:group_norm: {header} " in real.run("why", "compile", **environment).stdout
    assert real.ran(real.run("compile", **environment)) == {"compile"}
    assert real.paths.ort_library("group_norm").read_bytes() != before
    assert real.ran(real.run("compile", **environment)) == set()


@pytest.mark.parametrize(
    ("files", "read", "expected"),
    [
        ([], ["c/x.h"], ["a//x.h", "b//x.h"]),
        (["a/y.h"], ["c/x.h", "b/z.h"], ["a//x.h//z.h", "b//x.h"]),
        ([], ["c/deep/er/x.h"], ["a//deep", "b//deep"]),
        (["a/deep/y.h"], ["c/deep/er/x.h"], ["a/deep//er", "b//deep"]),
        (["a/deep/er/y.h"], ["c/deep/er/x.h"], ["a/deep/er//x.h", "b//deep"]),
        (["a/x.h"], ["c/x.h"], ["b//x.h"]),
        ([], ["a/x.h"], []),
        ([], ["elsewhere/x.h"], []),
        ([], ["known/x.h", "c/inner/x.h"], ["a//inner", "b//inner"]),
    ],
)
def test_the_names_that_a_search_path_lacks(
    tmp_path: Path, files: list[str], read: list[str], expected: list[str]
) -> None:
    write_files(tmp_path, dict.fromkeys((*files, *read), ""))
    search, known = ([str(tmp_path / name) for name in names] for names in (("known", "a", "b", "c"), ("known",)))
    found = lacked([str(tmp_path / name) for name in read], search, input_folders=known)
    assert [path.removeprefix(f"{tmp_path}/") for path in found] == expected


@pytest.mark.compile
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_search_path_of_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    (tmp_path / "there").mkdir()
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", f"{tmp_path}/there:{tmp_path}/nowhere")
    found = of_compiler([compiler])
    assert f"{tmp_path}/there" in found and f"{tmp_path}/nowhere" in found
    assert found.index("/usr/local/include") < found.index("/usr/include")
