"""The bindings of all operators over torch's own headers compile in the oldest standard that a torch asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opmatrix.toolchain.torch_headers import find_torch_build
from tests.support.all_bindings import Generated, generate
from tests.support.projects import edited

pytestmark = [pytest.mark.compile, pytest.mark.torch]

OLDEST = "c++17"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return generate(tmp_path_factory.mktemp("all"))


def test_the_bindings_over_torchs_headers_compile_as_for_an_old_torch(generated: Generated, tmp_path: Path) -> None:
    command = generated.over_torchs_headers("g++", find_torch_build(Path(sys.prefix)).include, OLDEST)
    assert len(generated.torch) >= 15
    assert generated.problems(generated.torch, command, tmp_path) == ""


@pytest.mark.parametrize(
    ("header", "old", "new", "found"),
    [
        # Found in value_checks.h: no operator with value rules compiled for torch before 2.9.
        ("value_checks.h", "operator()(T before, T value)", "operator()(auto before, auto value)", "auto"),
        ("value_checks.h", "std::is_same_v<Limit, NoLimit>", "std::same_as<Limit, NoLimit>", "same_as"),
        ("value_checks.h", "less_equal(limit, value)", "std::cmp_less_equal(limit, value)", "cmp_less_equal"),
    ],
)
def test_what_the_standard_does_not_have_is_found(
    header: str, old: str, new: str, found: str, generated: Generated, tmp_path: Path
) -> None:
    path = generated.layouts[0].binding / header
    command = ["g++", f"-std={OLDEST}", "-pedantic-errors"]
    assert generated.problems([path], command, tmp_path) == ""
    with edited(path, old, new):
        assert found in generated.problems([path], command, tmp_path)
