from __future__ import annotations

from opmatrix.engine.tasks import GROUPS, doit_tasks
from opmatrix.records.step import Step


def test_steps_become_tasks_in_groups() -> None:
    steps = [
        Step(group="report", name="", command=("report",)),
        Step(group="compile", name="b", command=("compile", "b"), reads=("b.h",), writes=("b.so",)),
        Step(group="compile", name="a", command=("compile", "a"), after=("codegen",), config="flags"),
    ]
    tasks = {task.name: task for task in doit_tasks(steps)}
    assert list(tasks) == ["codegen", "compile", "compile:b", "compile:a", *list(GROUPS)[4:]], (
        "without a step of it there is no group of environments"
    )
    assert tasks["compile"].task_dep == ["compile:b", "compile:a"] and tasks["compile"].has_subtask
    assert (tasks["compile:b"].file_dep, tasks["compile:b"].targets) == ({"b.h"}, ["b.so"])
    assert (tasks["compile:a"].task_dep, tasks["compile:a"].meta) == (["codegen"], {"config": "flags"})
    assert all(tasks[group].doc for group in GROUPS if group in tasks)
