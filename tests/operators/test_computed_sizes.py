"""Operators whose sizes are computed or shared pass all gates; the search finds a size of a case in a kernel."""

from __future__ import annotations

import shutil

import pytest

from tests.support.projects import ROOT, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

# A fault of a kernel that reads outside of an input in shapes that no case has.
FAULTS = {
    "unshuffle": ("edges->data[values->size(0)]", "edges->data[4]"),
    "batched_take": ("rows = y.numel() / count;", "rows = 6;"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.copy(tmp_path_factory.mktemp("computed"), operators=())
    for name in FAULTS:
        for room in ("ops", "native"):
            shutil.copytree(ROOT / f"tests/projects/computed/{room}/{name}", made.root / room / name)
    made.passes("opsets=18")
    return made


@pytest.mark.parametrize("name", FAULTS)
def test_the_search_finds_a_size_of_a_case_in_a_kernel(project: Project, name: str) -> None:
    with edited(project.root / f"native/{name}/kernel.h", *FAULTS[name]):
        project.fails(f"register:{name}-search@torch2.13", message=f"{name}-found_")
        done = project.doit(f"register:{name}-kernel@torch2.13")
        assert done.returncode == 0, "the cases alone do not find it"
