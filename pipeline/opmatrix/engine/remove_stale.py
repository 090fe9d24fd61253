"""Remove what operators left behind that are no longer there."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from doit.task import Task

from opmatrix.engine.database import Journal
from opmatrix.engine.doit_tasks import ENVIRONMENT, StepTask
from opmatrix.project.paths import Paths

# Steps that are named by an environment.
_NO_OPERATORS = (f"{ENVIRONMENT}:", "probe:")


def collect_removed(layout: Paths, tasks: Sequence[Task], journal: Journal) -> list[str]:
    """Remove all that was made for an operator whose folder in ops/ is gone; say so.

    A step that is merely not planned this time keeps its outputs: `doit opsets=18` must not cost the other opsets.
    """
    told = []
    for operator, steps in removed_operators(layout, tasks, journal).items():
        for path in layout.operator_files(operator):
            remove(path)
        journal.erase(steps)
        told.append(f"{operator} is no longer in {layout.ops.name}/: what was built for it is removed")
    return told


def removed_operators(layout: Paths, tasks: Sequence[Task], journal: Journal) -> dict[str, list[str]]:
    """Return the operators whose folder is gone, each with the steps that ran for it."""
    present = {task.step.operator for task in tasks if isinstance(task, StepTask)}
    gone: dict[str, list[str]] = {}
    for task in journal.steps:
        if task.startswith(_NO_OPERATORS):
            continue
        # Nothing plans a step of an operator that is gone: the journal has its name alone.
        operator = task.partition(":")[2].partition("@")[0].partition("-")[0]
        if operator not in present and not layout.op(operator).exists():
            gone.setdefault(operator, []).append(task)
    return gone


def remove(path: Path) -> None:
    """Remove a file or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
