"""`doit --shard`: one part of the graph, with what it needs, and a report of that part."""

from __future__ import annotations

from pathlib import Path

import pytest
from doit.control import TaskControl
from doit.exceptions import InvalidCommand

from opmatrix.commands.base import select
from opmatrix.commands.run import select_part
from opmatrix.engine.tasks import DEFAULT, REPORT, StepTask, doit_tasks
from opmatrix.plan.steps import steps
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step
from tests.plan.test_step_keys import default_plan


@pytest.fixture(scope="module")
def planned(root: Path) -> list[Step]:
    return [*steps(default_plan(Paths(root)))]


def part(planned: list[Step], shard: str, paths: Paths, names: list[str]) -> TaskControl:
    return select_part(select([*doit_tasks(planned)], names, commands=()), shard, paths)


def test_the_parts_together_are_the_run(planned: list[Step], tmp_path: Path) -> None:
    """Each verdict in exactly one part but the comparisons of exports; each part has what its steps need."""
    paths, found = Paths(tmp_path), dict[str, str]()
    for shard in ("1/3", "2/3", "3/3"):
        control = part(planned, shard, paths, [*DEFAULT])
        tasks = control.tasks
        assert all(isinstance(task, StepTask) for task in tasks.values())
        assert all(name in tasks for task in tasks.values() for name in task.task_dep)
        own = [name for name in control.selected_tasks if name != REPORT]
        assert not found.keys() & own
        found |= dict.fromkeys(own, shard)
        report = tasks[REPORT].step
        verdicts = {tasks[name].step.verdict for name in own} - {None}
        assert {*paths.shard_list.read_text().splitlines()} == verdicts
        assert report.asks[-2:] == ("--shard", shard) and str(paths.shard_list) in report.reads
        assert {step.verdict for step in planned if step.verdict in report.reads} <= verdicts
    expected = {s.task for s in planned if s.group in DEFAULT and s.verdict and s.command[0] != "compare-exports"}
    assert found.keys() == expected


def test_a_part_of_chosen_steps(planned: list[Step], tmp_path: Path) -> None:
    names = [s.task for s in planned if s.group == "verify" and s.operator == "gelu"]
    parts = [part(planned, f"{n}/2", Paths(tmp_path), names).selected_tasks for n in (1, 2)]
    assert sorted([*parts[0], *parts[1]]) == sorted(names) and parts[0] and parts[1]
    compiled = {name for n in (1, 2) for name in part(planned, f"{n}/2", Paths(tmp_path), ["compile"]).tasks}
    assert {s.task for s in planned if s.group == "compile"} <= compiled


def test_a_wheel_has_no_parts(planned: list[Step], tmp_path: Path) -> None:
    with pytest.raises(InvalidCommand, match="--shard 1/2: 'dist' needs every cell of the plan, so run it without"):
        part(planned, "1/2", Paths(tmp_path), ["dist"])
