"""Which tasks a command line names."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Task

from opmatrix.engine.doit_tasks import DEFAULT, StepTask
from opmatrix.errors import did_you_mean


def steps_of_operators(tasks: Iterable[Task]) -> dict[str, list[str]]:
    """Return the steps that `doit` runs for each operator by itself, by its name."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        if isinstance(task, StepTask) and task.step.operator and task.step.group in DEFAULT:
            found.setdefault(task.step.operator, []).append(task.name)
    return found


def with_operators(names: Sequence[str], tasks: Sequence[Task]) -> list[str]:
    """Return what a command line names, with the steps of an operator in the place of its name."""
    known = {task.name for task in tasks}
    if known.issuperset(names):
        return list(names)
    operators = steps_of_operators(tasks)
    return [step for name in names for step in ([name] if name in known else operators.get(name, [name]))]


def select(tasks: Sequence[Task], names: Sequence[str] | None, *, commands: Sequence[str]) -> TaskControl:
    """Return doit's control of the tasks, with those selected that `names` says: all, where it says nothing.

    Raises InvalidCommand for a name, output or pattern that is unknown, with the nearest one that is known.
    """
    control = TaskControl(tasks)
    try:
        control.process(names)
    except InvalidCommand as error:
        if error.not_found in commands:
            raise InvalidCommand(
                f"{error.not_found!r} is a command, and stands first: doit {error.not_found} ..."
            ) from error
        if error.not_found:
            near = did_you_mean(error.not_found, [*control.tasks, *commands, *steps_of_operators(tasks)])
            raise InvalidCommand(
                f"no task, operator, command or output {error.not_found!r}{near}; see `doit list --all`"
            ) from error
        raise
    for pattern in names or ():
        if "*" in pattern and not fnmatch.filter(control.tasks, pattern):
            raise InvalidCommand(f"no task matches {pattern!r}; see `doit list --all`")
    return control
