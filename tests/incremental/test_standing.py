"""The report also has cells of earlier runs, as long as their verdicts are up to date."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.incremental.conftest import Project

pytestmark = pytest.mark.incremental

COVERED = "build/report/verdicts.txt"


def plan(project: Project, *cells: str, code: str = "1", command: str = "verify") -> None:
    """Plan an export and a verification of my_op in each cell, and a report, as a choice of cells does."""
    project.steps.clear()
    for cell in cells:
        verdict = f"build/verify/my_op/custom/{cell}.json"
        manifest = f"build/export/my_op/custom/{cell.rpartition('-')[0]}/export.json"
        config = json.dumps({"code": code, "once": cell == cells[0]})
        project.step(f"export:my_op-custom@{cell.rpartition('-')[0]}", "copy", "lowering.txt", manifest, config=config)
        task, reads = f"verify:my_op-custom@{cell}", [manifest, "library.txt"]
        project.step(task, command, manifest, verdict, reads=reads, config=config, verdict=verdict)
    report = project.report("report_all", discovered_inputs=COVERED)
    report.update(command=["report_all"], asks=report["reads"])


def covered(project: Project) -> list[str]:
    """Return the cells that the report got."""
    return [path.rpartition("/")[2].removesuffix(".json") for path in project.read(COVERED).splitlines()]


def run(project: Project, *cells: str, **options: str) -> str:
    plan(project, *cells, **options)
    return project.doit().stdout


OLD, NEW, RUN_ONLY = (
    "torch2.9-legacy-opset18-ort1.31",
    "torch2.13-legacy-opset18-ort1.31",
    "torch2.13-legacy-opset18-ort1.18",
)


@pytest.fixture(autouse=True)
def sources(project: Project) -> None:
    for name in ("lowering.txt", "library.txt"):
        project.write(name, "as it was")


def cells_after(project: Project, *runs: Sequence[str]) -> list[str]:
    for cells in runs:
        run(project, *cells)
    return covered(project)


def test_up_to_date_cells_of_other_runs_stay_in_the_report(project: Project) -> None:
    """Another choice of verified cells makes no new report, for all is up to date; one with a new cell makes one."""
    assert cells_after(project, [NEW]) == [NEW]
    assert cells_after(project, [OLD]) == [NEW, OLD]
    assert cells_after(project, [RUN_ONLY]) == [RUN_ONLY, NEW, OLD]
    for cell in (OLD, NEW, RUN_ONLY):
        assert "all up to date" in run(project, cell)
    assert cells_after(project, [OLD, NEW]) == [RUN_ONLY, NEW, OLD]
    assert "TABLE of 2 cells, 0 bad" in run(project, OLD, NEW.replace("opset18", "opset20"))


@pytest.mark.parametrize("name", ["library.txt", "lowering.txt"])
def test_a_verdict_of_an_older_input_leaves_the_report(project: Project, name: str) -> None:
    """Verification reads the library; only the export reads the lowering, and it did not run again."""
    cells_after(project, [OLD], [NEW])
    project.write(name, "edited")
    said = run(project, NEW)
    assert covered(project) == [NEW]
    assert f"not in the report, for what earlier runs verified is out of date: {OLD}\n" in said


def test_a_verdict_of_older_code_or_one_that_has_changed_leaves_the_report(project: Project) -> None:
    cells_after(project, [OLD], [NEW])
    for cell, expected in ((NEW, [NEW]), (OLD, [NEW, OLD])):
        run(project, cell, code="2")
        assert covered(project) == expected
    project.write(f"build/verify/my_op/custom/{OLD}.json", '{"outcome": "verified"} ')
    run(project, NEW, code="2")
    assert covered(project) == [NEW]


def test_a_failed_cell_stays_in_the_report(project: Project) -> None:
    """If its verdict has the format of this opmatrix."""
    run(project, OLD, command="throw")
    assert cells_after(project, [NEW]) == [NEW, OLD]
    project.write("library.txt", "edited")
    assert cells_after(project, [NEW]) == [NEW, OLD]
    path = f"build/verify/my_op/custom/{OLD}.json"
    project.write(path, json.dumps(project.json(path) | {"cell": OLD}))
    project.write("library.txt", "edited again")
    assert f"earlier runs verified is out of date: {OLD}\n" in run(project, NEW)
    assert covered(project) == [NEW]


def test_every_run_of_a_wrong_cell_makes_its_report(project: Project) -> None:
    """A run of that cell prints it and fails, although nothing has changed since another choice."""
    run(project, OLD, command="throw")
    plan(project, NEW)
    for _ in range(2):
        done = project.doit()
        assert done.returncode == 0 and "TABLE of 1 cells, 0 bad" in done.stdout
    plan(project, OLD, command="throw")
    done = project.doit()
    assert done.returncode != 0 and "TABLE of 1 cells, 1 bad" in done.stdout
    run(project, OLD)
    assert "all up to date" in run(project, NEW)
