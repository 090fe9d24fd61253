"""Remove the outputs of operators whose folder in ops/ was deleted."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from doit.task import Task

from opmatrix.engine.database import Journal
from opmatrix.engine.tasks import DIST, ENVIRONMENT, StepTask
from opmatrix.project.paths import Paths

# Groups whose steps have the name of an environment or of a kind of wheel instead of an operator.
_NO_OPERATORS = (f"{ENVIRONMENT}:", "probe:", f"{DIST}:")


def collect_removed(paths: Paths, tasks: Sequence[Task], journal: Journal) -> list[str]:
    """Remove the outputs of each operator whose folder in ops/ is gone, and return a message for each. Outputs of steps
    that are only not planned this time, as by `doit opsets=18`, stay."""
    messages = []
    for operator, steps in removed_operators(paths, tasks, journal).items():
        for path in paths.operator_files(operator):
            remove(path)
        journal.erase(steps)
        messages.append(f"{operator} is no longer in {paths.ops.name}/: what was built for it is removed")
    return messages


def removed_operators(paths: Paths, tasks: Sequence[Task], journal: Journal) -> dict[str, list[str]]:
    """Return the operators whose folder is gone, each with its steps in the journal."""
    present = {task.step.operator for task in tasks if isinstance(task, StepTask)}
    gone: dict[str, list[str]] = {}
    for task in journal.steps:
        if task.startswith(_NO_OPERATORS):
            continue
        # A step of an operator that is gone is not planned, so its name in the journal is all that is known.
        operator = task.partition(":")[2].partition("@")[0].partition("-")[0]
        if operator not in present and not paths.op(operator).exists():
            gone.setdefault(operator, []).append(task)
    return gone


def remove(path: Path) -> None:
    """Remove a file or a whole folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
