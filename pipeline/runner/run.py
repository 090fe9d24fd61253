"""`doit [TASK ...]`: one run at a time per build folder, in warm servers. doit's `run` command."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import IO, Any, ClassVar, NoReturn

from doit.cmd_run import Run as DoitRun
from doit.cmd_run import opt_always, opt_continue, opt_num_process, opt_outfile, opt_reporter, opt_single, opt_verbosity
from doit.control import TaskControl
from doit.task import Stream

from pipeline.layout import Layout
from pipeline.runner.collect import collect_removed
from pipeline.runner.journal import REMEDY, move_aside
from pipeline.runner.lock import LockedError, hold
from pipeline.runner.runners import StepRunner, ThreadRunner
from pipeline.runner.select import select

INTERRUPTED = 130
ERROR = 3


class Run(DoitRun):
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
    entry: ClassVar[str] = "pipeline.cli:main"

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        try:
            with hold(Layout(Path.cwd()).lock) as self._lock:
                return int(super().execute(params, args))
        except LockedError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        except sqlite3.OperationalError as error:
            print(f"cannot write {Layout(Path.cwd()).state}: {error}. {REMEDY}", file=sys.stderr)
            return ERROR
        except sqlite3.DatabaseError as error:
            state = Layout(Path.cwd()).state
            aside = move_aside(state)
            print(f"{state} is damaged ({error}); it was moved to {aside}. Run doit again", file=sys.stderr)
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
        layout = Layout(Path.cwd())
        collect_removed(layout, self.task_list, self.dep_manager.journal)
        with _stream(outfile) as out:
            arguments = [self.dep_manager, self.reporters[reporter](out, {}), continue_, always]
            arguments.append(Stream(verbosity, force_verbosity))
            if num_process > 1:
                arguments.append(num_process)
            kind = ThreadRunner if num_process > 1 else StepRunner
            runner = kind(*arguments, layout=layout, entry=self.entry, lock=self._lock, terminal=_terminal(out))
            return int(runner.run_all(self.control.task_dispatcher()))


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
