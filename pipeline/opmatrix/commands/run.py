"""`doit [TASK ...]`: run what is not up to date, steps in fork servers. doit's `run` command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

from doit.cmd_run import Run as DoitRun
from doit.cmd_run import opt_always, opt_continue, opt_num_process, opt_outfile, opt_reporter, opt_single, opt_verbosity
from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Stream, Task

from opmatrix.commands.base import LockedCommand, annotates
from opmatrix.commands.task_selection import select
from opmatrix.engine.doit_tasks import StepTask
from opmatrix.engine.progress_reporter import StepReporter
from opmatrix.engine.remove_stale import collect_removed
from opmatrix.engine.step_runner import StepRunner, ThreadRunner
from opmatrix.errors import many

if TYPE_CHECKING:
    from opmatrix.engine.forecast import Expected

INTERRUPTED = 130
STRICT = {
    "name": "strict",
    "long": "strict",
    "type": bool,
    "default": False,
    "help": "exit with 1 if a check is weak: verified, though it tried little",
}
FORMAT = {
    "name": "format",
    "long": "format",
    "type": str,
    "default": "auto",
    "choices": (("auto", "github in GitHub Actions, else text"), ("text", "text"), ("github", "with ::error lines")),
    "help": "how failures are printed: in GitHub Actions also as annotations of files and lines",
}


class Run(LockedCommand, DoitRun):
    """Run steps, one run at a time per build folder."""

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
        STRICT,
        FORMAT,
    )
    # The function that the child of a server calls with the arguments of a step.
    entry: ClassVar[str] = "opmatrix.cli:main"

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        if params["num_process"] < 0:
            raise InvalidCommand(f"--process takes a number from 0 on, found {params['num_process']}")
        for number in (signal.SIGTERM, signal.SIGHUP):
            # As Ctrl-C does: doit then closes the state, and the runner ends the servers.
            signal.signal(number, signal.default_int_handler)
        try:
            return super().execute(params, args)
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
        strict: bool,
        format: str,
    ) -> int:
        """Do what doit's Run does, with opmatrix's runners, for which doit 0.37 has no option."""
        self.control = select(self.task_list, self.sel_tasks, commands=self.loader.cmd_names)
        if format == "github" and reporter != "progress":
            raise InvalidCommand(f"--format github needs the reporter 'progress', found {reporter!r}")
        if single:
            _drop_dependencies(self.control)
        cores = max(1, num_process)
        removed = collect_removed(self._paths, self.task_list, self.dep_manager.journal)
        with Path(outfile).open("w", encoding="utf-8") if isinstance(outfile, str) else nullcontext(outfile) as out:
            runner = (ThreadRunner if num_process > 1 else StepRunner)(
                self.dep_manager,
                self._reporter(reporter, out, removed, cores=cores, annotate=annotates(format)),
                continue_,
                always,
                Stream(verbosity, force_verbosity),
                *([num_process] if num_process > 1 else ()),
                layout=self._paths,
                entry=self.entry,
                lock=self._lock,
                terminal=_terminal_variables(out),
                cores=cores,
            )
            code = int(runner.run_all(self.control.task_dispatcher()))
        weak = _show_weak(self.control, strict=strict)
        return code or int(strict and weak)

    def _reporter(self, name: str, out: IO[str], notes: Iterable[str], *, cores: int, annotate: bool) -> Any:
        """Return a reporter. One of opmatrix also gets the notes, and a function that forecasts the run."""
        found = self.reporters[name](out, {})
        if isinstance(found, StepReporter):

            def expect() -> Expected:
                from opmatrix.engine.forecast import expected  # imported only when a step runs

                return expected(self.control, self.dep_manager, cores=cores)

            found.expect, found.annotate = expect, annotate
            for note in notes:
                found.note(note)
        return found


def _show_weak(control: TaskControl, *, strict: bool) -> bool:
    """Return whether there are weak checks among the chosen steps, and print them unless the report does."""
    chosen = [task.step for task in _chosen(control) if isinstance(task, StepTask)]
    if not strict and any(step.group == "report" for step in chosen):
        return False
    from opmatrix.report.records import weak_checks
    from opmatrix.verdict import read_check  # imported here: not every command reads records

    records = []
    for step in chosen:
        if step.check and step.verdict:
            with suppress(OSError, ValueError):
                records.append(read_check(Path(step.verdict)))
    if weak := weak_checks(records):
        print(f"{'--strict: ' if strict else ''}{many(len(weak), 'check')} weak:", file=sys.stderr)
        for found in weak:
            print("\n  ".join([str(found), *found.weak]), file=sys.stderr)
    return bool(weak)


def _chosen(control: TaskControl) -> Iterator[Task]:
    """Yield the selected tasks and those that they depend on."""
    left, seen = list(control.selected_tasks), set[str]()
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            yield control.tasks[name]
            left += control.tasks[name].task_dep


def _drop_dependencies(control: TaskControl) -> None:
    """Remove the dependencies of the selected tasks: doit's option ``--single``."""
    for name in control.selected_tasks:
        task = control.tasks[name]
        for part in [control.tasks[n] for n in task.task_dep] if task.has_subtask else [task]:
            part.task_dep = []


def _terminal_variables(out: IO[str]) -> dict[str, str]:
    """Return the variables that describe this terminal to the report step, which prints into a log."""
    if not out.isatty():
        return {}
    colour = {} if os.environ.get("NO_COLOR") else {"FORCE_COLOR": "1"}
    columns = os.get_terminal_size(out.fileno()).columns
    return colour | ({"COLUMNS": str(columns)} if columns else {})  # 0: an unknown width
