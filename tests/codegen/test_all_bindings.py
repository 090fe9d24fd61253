"""The bindings of all operators over torch's C++ headers compile as C++17, the standard for torch before 2.15."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opmatrix.toolchain.headers import find_torch_build
from tests.support.all_bindings import Bindings, generate
from tests.support.projects import edited

pytestmark = [pytest.mark.compile, pytest.mark.torch]

OLDEST = "c++17"


@pytest.fixture(scope="module")
def bindings(tmp_path_factory: pytest.TempPathFactory) -> Bindings:
    return generate(tmp_path_factory.mktemp("all"))


def test_the_bindings_over_torchs_headers_compile_as_for_an_old_torch(bindings: Bindings, tmp_path: Path) -> None:
    flags = bindings.classic(find_torch_build(Path(sys.prefix)).include, OLDEST)
    files = bindings.files("torch.cc")
    assert len(files) >= 15
    assert bindings.errors(files, ["g++", "-w", *flags], tmp_path) == ""


@pytest.mark.parametrize(
    ("header", "old", "new", "found"),
    [
        # Each was in value_checks.h, so that no operator with value rules compiled for torch before 2.9.
        ("value_checks.h", "operator()(T before, T value)", "operator()(auto before, auto value)", "auto"),
        ("value_checks.h", "std::is_same_v<Limit, NoLimit>", "std::same_as<Limit, NoLimit>", "same_as"),
        ("value_checks.h", "less_equal(limit, value)", "std::cmp_less_equal(limit, value)", "cmp_less_equal"),
    ],
)
def test_what_the_standard_does_not_have_is_found(
    header: str, old: str, new: str, found: str, bindings: Bindings, tmp_path: Path
) -> None:
    path = bindings.layouts[0].binding / header
    command = ["g++", f"-std={OLDEST}", "-pedantic-errors"]
    assert bindings.errors([path], command, tmp_path) == ""
    with edited(path, old, new):
        assert found in bindings.errors([path], command, tmp_path)
