"""`doit [TASK ...]`: one run at a time per build folder, in warm servers. doit's `run` command."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, ClassVar, NoReturn

from doit.cmd_run import Run as DoitRun
from doit.cmd_run import opt_always, opt_continue, opt_num_process, opt_outfile, opt_reporter, opt_single, opt_verbosity
from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Stream

from opmatrix.commands.base import CommandBase
from opmatrix.commands.task_selection import select
from opmatrix.engine.database import REMEDY, move_aside
from opmatrix.engine.lock import hold
from opmatrix.engine.progress_reporter import StepReporter
from opmatrix.engine.remove_stale import collect_removed
from opmatrix.engine.step_runner import StepRunner, ThreadRunner
from opmatrix.project.paths import Paths

if TYPE_CHECKING:
    from opmatrix.engine.forecast import Expected

INTERRUPTED = 130
ERROR = 3


class Run(CommandBase, DoitRun):
    """run steps, one run at a time"""

    name = "run"
    doc_purpose = "run what is not up to date"
    cmd_options = (
        opt_always,
        opt_continue,
        opt_verbosity | {"default": 1, "help": "2 shows what every step prints, not only what failed ones do"},
        opt_reporter,
        opt_outfile,
        opt_num_process,
        opt_single,
    )
    # What the child of a server calls with the arguments of a step.
    entry: ClassVar[str] = "opmatrix.cli:main"

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if params["num_process"] < 0:
            raise InvalidCommand(f"--process takes a number from 0 on, found {params['num_process']}")
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        try:
            with hold(Paths(Path.cwd()).lock) as self._lock:
                return int(super().execute(params, args))
        except sqlite3.DatabaseError as error:
            print(_describe(error, Paths(Path.cwd()).state), file=sys.stderr)
            return ERROR
        except KeyboardInterrupt:
            print("interrupted; what had finished is kept", file=sys.stderr)
            return INTERRUPTED

    def _execute(
        self,
        outfile: str | IO[str],
        verbosity: int | None,
        always: bool,
        continue_: bool,
        reporter: str,
        num_process: int,
        single: bool,
        force_verbosity: bool,
    ) -> int:
        """Do what doit's own does, with our runners, for which it has no option."""
        self.control = select(self.task_list, self.sel_tasks, commands=self.loader.cmd_names)
        if single:
            _cut_off(self.control)
        layout = Paths(Path.cwd())
        removed = collect_removed(layout, self.task_list, self.dep_manager.journal)
        with _stream(outfile) as out:
            arguments = [self.dep_manager, self._reporter(reporter, out, removed, cores=max(1, num_process))]
            arguments += [continue_, always]
            arguments.append(Stream(verbosity, force_verbosity))
            if num_process > 1:
                arguments.append(num_process)
            kind = ThreadRunner if num_process > 1 else StepRunner
            runner = kind(
                *arguments,
                layout=layout,
                entry=self.entry,
                lock=self._lock,
                terminal=_terminal(out),
                cores=max(1, num_process),
            )
            return int(runner.run_all(self.control.task_dispatcher()))

    def _reporter(self, name: str, out: IO[str], notes: Iterable[str], *, cores: int) -> Any:
        """Make a reporter; ours can ask what is to be expected, which it does where something runs and is shown."""
        made = self.reporters[name](out, {})
        if isinstance(made, StepReporter):

            def expect() -> Expected:
                from opmatrix.engine.forecast import expected  # here, for a run with nothing to do pays for it

                return expected(self.control, self.dep_manager, cores=cores)

            made.expect = expect
            for note in notes:
                made.note(note)
        return made


def _describe(error: sqlite3.DatabaseError, state: Path) -> str:
    """Say what is wrong with the state, and move a damaged one away. Raises `error` if the fault is ours."""
    if isinstance(error, sqlite3.OperationalError):
        return f"cannot write {state}: {error}. {REMEDY}"
    if type(error) is not sqlite3.DatabaseError:
        raise error
    return f"{state} is damaged ({error}); it was moved to {move_aside(state)}. Run doit again"


def _cut_off(control: TaskControl) -> None:
    """Leave out what the selected tasks depend on: doit's option ``--single``."""
    for name in control.selected_tasks:
        task = control.tasks[name]
        for part in [control.tasks[n] for n in task.task_dep] if task.has_subtask else [task]:
            part.task_dep = []


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # As Ctrl-C: doit then closes the state, and we end the servers.
    raise KeyboardInterrupt


def _terminal(out: IO[str]) -> dict[str, str]:
    """Return what tells the report, which prints into a log, how our terminal looks."""
    if not out.isatty():
        return {}
    colour = {} if os.environ.get("NO_COLOR") else {"FORCE_COLOR": "1"}
    columns = os.get_terminal_size(out.fileno()).columns
    return colour | ({"COLUMNS": str(columns)} if columns else {})  # 0: a terminal that does not know


def _stream(outfile: str | IO[str]) -> AbstractContextManager[IO[str]]:
    return Path(outfile).open("w", encoding="utf-8") if isinstance(outfile, str) else nullcontext(outfile)
