"""Operators whose inputs are tied: nearly all random inputs are accepted, and many have shapes that no case has."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.search import coverage, draw_inputs, drawn
from tests.support.projects import ROOT, replace_in

# The operator, and its project in tests/projects.
OPERATORS = {
    "deform_conv": "computed",  # a deformable convolution
    "bag_sums": "tied",  # a segment sum
    "csr_times": "tied",  # offsets that end at a size
    "gather_rows": "tied",  # an index gather
    "batched_take": "computed",  # the same with any axes before, which two inputs share
}


def project(root: Path, name: str) -> Paths:
    for room in ("ops", "native"):
        shutil.copytree(ROOT / f"tests/projects/{OPERATORS[name]}/{room}/{name}", root / room / name)
    return Paths(root)


def record(paths: Paths, name: str) -> dict[str, Any]:
    """Draw inputs as the step does, and return what its record says."""
    operator = load_operator(paths, name)
    draw_inputs.run(paths, operator)
    return coverage.measure(operator, drawn.read_all(paths.drawn_inputs(name), name))


SLOW = {"deform_conv"}  # 5 CPU seconds


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in OPERATORS])
def test_nearly_all_are_accepted(name: str, tmp_path: Path) -> None:
    found = record(project(tmp_path, name), name)
    assert found["examples"] >= 190 and found["refused"] < 0.1 * found["examples"], found
    assert found["new_shapes"] >= 30 and found["weak"] == [], found


@pytest.mark.parametrize(
    ("name", "tie", "without"),
    [("batched_take", 'index_into="N"', "minimum=0"), ("csr_times", ', sorted="ascending", spans=True', "")],
)
def test_without_the_tie_most_are_refused_and_the_record_says_so(
    name: str, tie: str, without: str, tmp_path: Path
) -> None:
    paths = project(tmp_path, name)
    replace_in(paths.spec(name), tie, without)
    found = record(paths, name)
    assert found["refused"] > 0.5 * found["examples"]
    assert found["weak"][0].startswith(f"the reference rejects {found['refused']} of {found['examples']} random inputs")
