"""The tasks that a command line selects: by task, operator, output or pattern."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Task

from opmatrix.basics.errors import did_you_mean
from opmatrix.engine.tasks import DECLARATION, DEFAULT, StepTask


def steps_of_operators(tasks: Iterable[Task]) -> dict[str, list[str]]:
    """Return the steps that `doit` runs by default for each operator, by its name."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        if isinstance(task, StepTask) and task.step.operator and task.step.group in (DECLARATION, *DEFAULT):
            found.setdefault(task.step.operator, []).append(task.name)
    return found


def with_operators(names: Sequence[str], tasks: Sequence[Task]) -> list[str]:
    """Return the names with each operator's name replaced by the steps of that operator."""
    known = {task.name for task in tasks}
    if known.issuperset(names):
        return list(names)
    operators = steps_of_operators(tasks)
    return [step for name in names for step in ([name] if name in known else operators.get(name, [name]))]


def select(tasks: Sequence[Task], names: Sequence[str] | None, *, commands: Sequence[str]) -> TaskControl:
    """Return doit's TaskControl with the tasks `names` selected, or all of them for None.

    Raises InvalidCommand for an unknown name, output or pattern, with the nearest known one.
    """
    control = TaskControl(tasks)
    try:
        control.process(names)
    except InvalidCommand as error:
        if error.not_found in commands:
            raise InvalidCommand(
                f"{error.not_found!r} is a command and must come first: doit {error.not_found} ..."
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


def require_steps(names: Iterable[str], tasks: Iterable[Task]) -> None:
    """Raise InvalidCommand for the first name that is no task, with the nearest one."""
    known = {task.name for task in tasks}
    if unknown := next((name for name in names if name not in known), None):
        raise InvalidCommand(f"no step {unknown!r}{did_you_mean(unknown, known)}; see `doit list --all`")
