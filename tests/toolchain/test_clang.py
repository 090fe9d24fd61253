"""clang compiles what g++ compiles, with the same warnings as errors: the marker `clang`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from opmatrix.toolchain import ort_headers
from opmatrix.toolchain.headers import find_torch_build
from tests.support.all_bindings import Bindings, generate
from tests.support.projects import Project, edited

pytestmark = [
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.ort,
    pytest.mark.clang,
    pytest.mark.skipif(shutil.which("clang++") is None, reason="no clang++ on PATH; Debian: apt install clang"),
]

COMMAND = ["clang++", "-Wall", "-Wextra", "-Wshadow", "-Werror"]


@pytest.fixture(scope="module")
def bindings(tmp_path_factory: pytest.TempPathFactory) -> Bindings:
    return generate(tmp_path_factory.mktemp("all"))


def flags_of(kind: str, bindings: Bindings) -> list[str]:
    if kind == "classic":
        return bindings.classic(find_torch_build(Path(sys.prefix)).include, "c++17")
    if kind == "stable":
        return ["-std=c++20", f"-I{bindings.layouts[0].binding / 'stable'}"]
    return ["-std=c++20", "-isystem", str(ort_headers.INCLUDED)]


@pytest.mark.parametrize(
    ("file", "kind"), [("kernel.cc", "ort"), ("ort.cc", "ort"), ("torch.cc", "stable"), ("torch.cc", "classic")]
)
def test_kernels_and_bindings_of_all_operators_compile(
    file: str, kind: str, bindings: Bindings, tmp_path: Path
) -> None:
    files = bindings.files(file)
    assert len(files) >= 15
    assert bindings.errors(files, [*COMMAND, *flags_of(kind, bindings)], tmp_path) == ""


def test_what_clang_alone_refuses_is_found(bindings: Bindings, tmp_path: Path) -> None:
    """The fault was in math.h: g++ computes its built-in functions at compile time, clang before 20 does not."""
    path = bindings.layouts[0].include / "opmatrix/math.h"
    with edited(path, "inline float sqrt", "constexpr float sqrt"):
        assert "constexpr function never produces" in bindings.errors([path], [*COMMAND, "-std=c++20"], tmp_path)


def test_an_operator_that_clang_compiled_is_verified(tmp_path: Path) -> None:
    project = Project.copy(tmp_path)
    project.passes("opsets=17,18", CXX="clang++")
    commands = (project.paths.build / "compile_commands.json").read_text()
    assert "clang++" in commands and "g++" not in commands.replace("clang++", "")
    outcomes = {record["outcome"] for record in project.records().values()}
    assert outcomes == {"verified"}
