"""Base classes of the commands: errors as messages and exit codes, and the lock of the build folder.

The tasks that a command line selects: by task, operator, output or pattern.
"""

from __future__ import annotations

import fnmatch
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from doit import doit_cmd
from doit.cmd_base import Command
from doit.cmdparse import CmdParseError
from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Task

from opmatrix.basics.errors import OpmatrixError, UsageError, did_you_mean, disk_fault, end_if_unread, print_error
from opmatrix.basics.terminal import for_stderr
from opmatrix.engine.database import Journal, StateError, describe
from opmatrix.engine.lock import hold
from opmatrix.engine.tasks import DECLARATION, DEFAULT, REPORT, StepTask
from opmatrix.project.paths import Paths


class CommandBase(Command):
    """Print usage errors in one line and exit with 2; doit 0.37 exits with 3, after the constructors of all options."""

    one_task = False  # whether an argument is one name, which is not replaced by the steps of that operator

    def selected(self, names: Sequence[str], tasks: Sequence[Task]) -> list[str]:
        """Return the arguments with each operator's name replaced by the steps of that operator."""
        known = {task.name for task in tasks}
        if self.one_task or known.issuperset(names):
            return list(names)
        operators = steps_of_operators(tasks)
        return [step for name in names for step in ([name] if name in known else operators.get(name, [name]))]

    @cached_property
    def _paths(self) -> Paths:
        return Paths(Path.cwd())

    def parse_execute(self, in_args: Sequence[str]) -> Any:
        try:
            return super().parse_execute(in_args)
        except CmdParseError as error:
            if {"-h", "--help"} & {*in_args}:  # doit 0.37 has only `help COMMAND`
                print(self.help())
                return 0
            print(f"doit {self.name}: {_usage_error(str(error), self.cmd_options)}", file=sys.stderr)
        except InvalidCommand as error:
            error.cmd_used, error.bin_name = self.name, self.bin_name
            print(f"doit {self.name}: {error}", file=sys.stderr)
        except OpmatrixError as error:
            show_error(error)
            return error.exit_code
        except BrokenPipeError:
            end_if_unread()
            raise
        except (sqlite3.DatabaseError, OSError) as error:
            # Any command may be the first to meet a full disk or a damaged page of the state.
            said = disk_fault(error) if isinstance(error, OSError) else describe(error, self._paths.state)
            if not said:
                raise
            print(said, file=sys.stderr, flush=True)
            return StateError.exit_code
        return UsageError.exit_code


class LockedCommand(CommandBase):
    """Hold the lock of the build folder while the command runs. Raises LockedError when another run holds it, unless
    the command waits for it and prints by `waits` for whom."""

    waits: Callable[[str], object] | None = None

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        with hold(self._paths.lock, waits=self.waits) as self._lock:
            return int(super().execute(params, args) or 0)


def report_again(paths: Paths) -> None:
    """Forget the success of the report, so that the next run of doit shows what a command has written. The caller holds
    the lock. A plain doit then looks at no file of that command."""
    if paths.state.is_file():
        journal = Journal(str(paths.state), None)
        journal.forget(REPORT)
        journal.dump()


def annotates(format: str) -> bool:
    """Return whether to print annotations, which GitHub Actions reads."""
    return format == "github" or (format == "auto" and os.environ.get("GITHUB_ACTIONS") == "true")


def show_error(error: OpmatrixError) -> None:
    """Print an error before any step runs, and for GitHub an annotation of the file that its first line names."""
    print_error(error, change=for_stderr)
    asked = re.search(r" --format[ =](\w+)", " ".join(sys.argv))  # doit has not read its options yet
    if annotates(asked[1] if asked else "auto"):
        from opmatrix.engine.causes import annotation  # imported here: most runs have no failure
        from opmatrix.engine.find_cause import in_output
        from opmatrix.engine.progress_reporter import folder_in_repository

        cause = error.cause or in_output(str(error).splitlines(), Path.cwd())
        print(annotation(cause, title="doit cannot begin", prefix=folder_in_repository()), flush=True)


def option(name: str, help: str, default: Any = "", **others: Any) -> dict[str, Any]:
    """Return doit's form of the option ``--name``, whose value has the type of `default`; `others`: further keys."""
    long = name.replace("_", "-")
    return {"name": name, "long": long, "type": type(default), "default": default, "help": help, **others}


def as_typed(arguments: Sequence[str], *, command: str) -> list[str]:
    """Return the arguments as they were typed: doit 0.37 removes each with '=' in it, such as a schema with a default,
    as a variable."""
    if not doit_cmd._CMDLINE_VARS or command not in sys.argv:
        return list(arguments)
    return sys.argv[sys.argv.index(command) + 1 :]


def _usage_error(error: str, options: Sequence[Mapping[str, Any]]) -> str:
    """Return the message of doit's option parser with the options as the user writes them. `options`: the command's."""
    longs = {option["name"]: f"--{option['long']}" for option in options if option.get("long")}
    if value := re.match(r"Error parsing parameter '(\w+)' <class '(\w+)'>\.\s*(.*?)\s*$", error, re.DOTALL):
        kind = {"int": "a whole number", "float": "a number"}.get(value[2], value[2])
        return f"{longs.get(value[1], value[1])} takes {kind}: {value[3]}"
    text = error.removeprefix("Error parsing Command: ").partition(" (parsing options")[0]
    if not (given := re.search(r"option (-\S+)", text)):
        return text
    return f"{text}{did_you_mean(given[1], longs.values())}; allowed: {', '.join(longs.values()) or 'none'}"


def steps_of_operators(tasks: Iterable[Task]) -> dict[str, list[str]]:
    """Return the steps that `doit` runs by default for each operator, by its name."""
    steps: dict[str, list[str]] = {}
    for task in tasks:
        if isinstance(task, StepTask) and task.step.operator and task.step.group in (DECLARATION, *DEFAULT):
            steps.setdefault(task.step.operator, []).append(task.name)
    return steps


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
