"""docs/mutation.md has a row for each kind of mutant, and its faults are mutants that exist."""

from __future__ import annotations

import functools
import re

import pytest

from opmatrix.addons.mutate import mutant as marks
from opmatrix.addons.mutate import python_mutants
from opmatrix.addons.mutate.cpp_data import LANES, LARGE
from opmatrix.addons.mutate.mutant import Mutant
from opmatrix.addons.mutate.operator_mutants import KINDS, operator_mutants
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from tests.support.projects import ROOT

PAGE = (ROOT / "docs/mutation.md").read_text()
PROJECTS = (ROOT, ROOT / "examples/borrowed")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_each_kind_has_a_row_and_numbers_are_those_of_the_code() -> None:
    kernels = {row[0]: row[1] for row in rows("Mutants of kernels")}
    assert sorted(kind for cell in kernels for kind in quoted(cell)) == sorted(KINDS)
    assert sorted(kind for row in rows("Mutants of Python") for kind in quoted(row[0])) == sorted(python_mutants.ALL)
    assert f"after {LARGE}" in kernels["`large`"] and f"multiples of {LANES}" in kernels["`tail`"]
    assert f"most {marks.MOST:.0%} of" in PAGE and f"[[{marks.TABLE}]]" in PAGE


FAULTS = rows("The faults of hollow proofs")


@functools.cache
def mutants_of(name: str) -> list[Mutant] | None:
    pytest.importorskip("tree_sitter_cpp", reason="needs the extra mutate")
    roots = [Paths(root) for root in PROJECTS if Paths(root).spec(name).is_file()]
    return operator_mutants(roots[0], load_operator(roots[0], name).spec) if roots else None


def problem(row: list[str]) -> str:
    """Return what is wrong with a row of the table of faults, or ""."""
    _, kind, name, mutant = (cell.strip("`") for cell in row)
    if (found := mutants_of(name)) is None:
        return f"no operator {name}"
    place, _, after = mutant.partition(" -> ")
    fits = [m for m in found if m.kind == kind and place in m.context and m.after.startswith(after)]
    return "" if fits else f"no {kind} mutant of {name}: {mutant}"


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row[0])
def test_a_fault_of_hollow_proofs_is_a_mutant(row: list[str]) -> None:
    assert problem(row) == ""


def test_a_row_with_a_fault_is_found() -> None:
    good = FAULTS[0]
    assert problem([*good[:3], "`nothing of the kind`"]) == "no size mutant of nms: nothing of the kind"
    assert problem([good[0], "`state`", *good[2:]]).startswith("no state mutant of nms")
    assert problem([*good[:2], "nothing", good[3]]) == "no operator nothing"
    assert len(FAULTS) >= 18 and len({row[1] for row in FAULTS}) >= 14, "most kinds, and enough faults"


@pytest.mark.parametrize("row", rows("How others test kernels"), ids=lambda row: row[0][:24])
def test_the_kinds_beside_what_others_found_exist(row: list[str]) -> None:
    assert row[0].count("](https://") == 1
    assert quoted(row[3]) and {*quoted(row[3])} <= KINDS.keys() | python_mutants.ALL.keys()
