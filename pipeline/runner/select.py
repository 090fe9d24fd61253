"""Which tasks a command line names."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Task

from pipeline.errors import did_you_mean


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
            near = did_you_mean(error.not_found, [*control.tasks, *commands])
            raise InvalidCommand(
                f"no task, command or output {error.not_found!r}{near}; see `doit list --all`"
            ) from error
        raise
    for pattern in names or ():
        if "*" in pattern and not fnmatch.filter(control.tasks, pattern):
            raise InvalidCommand(f"no task matches {pattern!r}; see `doit list --all`")
    return control
