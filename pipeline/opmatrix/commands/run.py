"""`doit [TASK ...]`: run what is not up to date, steps in fork servers. doit's `run` command.

`doit compat [OPERATOR ...]`: run operators in torch beyond eager mode, and print what works and what is refused.

`doit --shard 2/5`: one part of what a command line selects, and a report of that part.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

from doit.cmd_run import Run as DoitRun
from doit.cmd_run import opt_always, opt_continue, opt_num_process, opt_outfile, opt_reporter, opt_single, opt_verbosity
from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Stream, Task

from opmatrix.basics.errors import UsageError, did_you_mean, many
from opmatrix.basics.features import provided
from opmatrix.basics.files import write_text
from opmatrix.basics.interrupts import code_of, interruptible
from opmatrix.commands.base import LockedCommand, annotates, option, select
from opmatrix.commands.state import collect_removed
from opmatrix.engine.progress_reporter import StepReporter
from opmatrix.engine.step_runner import StepRunner, ThreadRunner
from opmatrix.engine.tasks import DIST, LINK, REPORT, StepTask, with_dependencies
from opmatrix.project.measured import read, unmeasured
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.records.step import Step

if TYPE_CHECKING:
    from opmatrix.engine.forecast import Expected
    from opmatrix.engine.server_pool import Resident
    from opmatrix.engine.shared_results import SharedResults
    from opmatrix.plan.shards import Shard
    from opmatrix.records.verdict import CheckRecord

COMPAT = "compat"  # the command, and its group of steps
KEPT = "interrupted; what had finished is kept"
_FORMATS = (("auto", "github in GitHub Actions, else text"), ("text", "text"), ("github", "with ::error lines"))


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
        option("strict", "exit with 1 if a check is weak: verified, though it tried little", False),
        option(
            "format",
            "how failures are printed: in GitHub Actions also as annotations of files and lines",
            "auto",
            choices=_FORMATS,
        ),
        option(
            "shard",
            "verify one part of the cells and checks, of equal cost on each machine that runs one: 2/5 is the second "
            "of five",
        ),
        option(
            "from_cache",
            "compute nothing: take what the shared cache has, and report what it lacks as not run",
            False,
        ),
        option(
            "on",
            "run steps on the workers of a dask scheduler, tls://HOST:8786, or on N workers here, local:N; -n at a "
            "time",
        ),
    )
    # The function that the child of a server calls with the arguments of a step.
    entry: ClassVar[str] = "opmatrix.commands.stages:main"
    # The function by which a worker plans the steps of a project.
    plan: ClassVar[str] = "opmatrix.engine.plan_cache:load_or_plan"
    # In a run of `doit watch`: the process that keeps the servers. Each such run is a process of its own.
    resident: ClassVar[Resident | None] = None

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        if params["num_process"] < 0:
            raise InvalidCommand(f"--process takes a number from 0 on, found {params['num_process']}")
        try:
            with interruptible():  # doit then closes the state, and the runner ends the servers
                return super().execute(params, args)
        except KeyboardInterrupt as error:
            if not self.resident:  # which prints why it ends a run
                print(KEPT, file=sys.stderr)
            return code_of(error)

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
        shard: str,
        from_cache: bool,
        on: str,
    ) -> int:
        """Do what doit's Run does, with opmatrix's runners, for which doit 0.37 has no option."""
        self.control = select(self.task_list, self.sel_tasks, commands=self.loader.cmd_names)
        if format == "github" and reporter != "progress":
            raise InvalidCommand(f"--format github needs the reporter 'progress', found {reporter!r}")
        if from_cache:
            self._require_cache(always=always)
        if shard:
            self.control = select_part(self.control, shard, self._paths)
        if single:
            _drop_dependencies(self.control)
        if self.resident:
            self._tell(self.resident)
        elsewhere = self._elsewhere(on, at_once=num_process, computes=not from_cache) if on else None
        cores = max(1, num_process)
        if elsewhere:
            num_process, cores = elsewhere.at_once, os.cpu_count() or 1
        removed = collect_removed(self._paths, self.task_list, self.dep_manager.journal)
        with (
            Path(outfile).open("w", encoding="utf-8") if isinstance(outfile, str) else nullcontext(outfile) as out,
            elsewhere.folders() if elsewhere else nullcontext(),
        ):
            found = self._reporter(reporter, out, removed, cores=cores, annotate=annotates(format))
            runner = (ThreadRunner if num_process > 1 else StepRunner)(
                self.dep_manager,
                found,
                continue_,
                always or self._compares(),
                Stream(verbosity, force_verbosity),
                *([num_process] if num_process > 1 else ()),
                paths=self._paths,
                entry=self.entry,
                lock=self._lock,
                terminal=_terminal_variables(out),
                cores=cores,
                share=lambda: self._open_shared(
                    found, environ=elsewhere.environ if elsewhere else os.environ, only_shared=from_cache
                ),
                connect=partial(elsewhere.connect, entry=self.entry, plan=self.plan, note=_notes(found))
                if elsewhere
                else None,
                only_shared=from_cache,
                kept=self.resident.server if self.resident else None,
            )
            code = int(runner.run_all(self.control.task_dispatcher()))
        weak = (strict or reporter != "brief") and _show_weak(self.control, strict=strict)
        return code or int(strict and weak)

    def _require_cache(self, *, always: bool) -> None:
        """Raise UsageError if a run that takes all from the shared cache could take nothing."""
        from opmatrix.shared_cache import settings  # imported here: most runs compute

        found = settings.read(self._paths, os.environ)
        if found is None:
            raise UsageError(f"--from-cache: no shared cache is set, or it is off. Set url in {settings.TABLE}, or "
                             f"{settings.URL}")  # fmt: skip
        if found.prove == "local":
            raise UsageError(f"--from-cache: {settings.TABLE} has prove = 'local', which takes no verdict from the "
                             "cache; allowed: 'shared'")  # fmt: skip
        if found.mode == "check":
            raise UsageError(f"--from-cache: the mode of the shared cache is 'check', which computes everything. Set "
                             f"{settings.MODE}=read")  # fmt: skip
        if always:
            raise UsageError("--from-cache computes nothing, and --always-execute computes everything: leave one out")

    def _compares(self) -> bool:
        """Return whether every step is computed, to compare it with the shared cache: its mode is "check"."""
        mode = os.environ.get("OPMATRIX_CACHE_MODE")
        if mode != "check":
            path = self._paths.root / "pyproject.toml"
            text = path.read_text(encoding="utf-8") if path.is_file() and not mode else ""
            if '"check"' not in text and "'check'" not in text:
                return False  # as nearly always, without the 4 ms of the lines below
        from opmatrix.shared_cache import settings

        found = settings.read(self._paths, os.environ)
        return found is not None and found.mode == "check"

    def _elsewhere(self, on: str, *, at_once: int, computes: bool) -> Any:
        """Return the workers that ``--on`` names. Raises UsageError."""
        if not computes:
            raise UsageError("--from-cache computes nothing, and --on names workers that compute: leave one out")
        if self.resident:
            raise UsageError("doit watch runs steps in servers that it keeps here: leave --on out")
        return provided("workers")(on, paths=self._paths, environ=os.environ, at_once=at_once)

    def _open_shared(self, reporter: Any, *, environ: Mapping[str, str], only_shared: bool) -> SharedResults | None:
        """Open the shared cache, if the project has one. Raises UsageError for settings that are not valid."""
        from opmatrix.shared_cache import settings  # imported only when a step runs

        if not (read := settings.read(self._paths, environ)):
            return None
        from opmatrix.engine.shared_results import SharedResults

        chosen = [task for task in _chosen(self.control) if isinstance(task, StepTask)]
        return SharedResults(read, paths=self._paths, state=self.dep_manager, tasks=chosen, warn=_notes(reporter),
                             only_shared=only_shared)  # fmt: skip

    def _tell(self, resident: Resident) -> None:
        """Name the servers that the chosen steps may need, and what they read of the project outside ops/, native/ and
        build/: folders, and files of the root."""
        paths, steps = self._paths, [task.step for task in _chosen(self.control) if isinstance(task, StepTask)]
        reads = {path.rpartition("/")[::2] for step in steps for path in step.reads}
        apart = {paths.build, paths.ops, paths.native, paths.root / ".venv-matrix"}
        folders = {folder for folder in map(Path, {folder for folder, _ in reads}) if paths.root in folder.parents}
        more = [f for f in folders if not {*f.parents, f} & apart and not {*f.parents} & folders]
        files = [f"{folder}/{name}" for folder, name in reads if folder == str(paths.root)]
        servers = dict.fromkeys(name for step in steps if (name := step.server_name))
        resident.tell(([*servers], [*map(str, sorted(more)), *sorted(files)]))

    def _reporter(self, name: str, out: IO[str], notes: Iterable[str], *, cores: int, annotate: bool) -> Any:
        """Return a reporter. One of opmatrix also gets the notes, and a function that forecasts the run."""
        reporter = self.reporters[name](out, {})
        if isinstance(reporter, StepReporter):

            def expect() -> Expected:
                from opmatrix.engine.forecast import expected  # imported only when a step runs

                return expected(self.control, self.dep_manager, cores=cores)

            reporter.expect, reporter.annotate = expect, annotate
            if said := unmeasured(read(self._paths), installed()):
                reporter.note(said)
            for note in notes:
                reporter.note(note)
        return reporter


def _notes(reporter: Any) -> Callable[[str], None]:
    """Return the function that prints a line for the user."""
    if isinstance(reporter, StepReporter):
        return reporter.note
    return lambda text: print(text, file=sys.stderr)


def _show_weak(control: TaskControl, *, strict: bool) -> bool:
    """Return whether there are weak checks among the chosen steps, and print them unless the report does."""
    chosen = [task.step for task in _chosen(control) if isinstance(task, StepTask)]
    if not strict and any(step.group == "report" for step in chosen):
        return False
    from opmatrix.report.records import weak_checks  # imported here: not every command reads records

    if weak := weak_checks(_read_checks(step for step in chosen if step.check)):
        print(f"{'--strict: ' if strict else ''}{many(len(weak), 'check')} weak:", file=sys.stderr)
        for found in weak:
            print("\n  ".join([str(found), *found.weak]), file=sys.stderr)
    return bool(weak)


def _read_checks(steps: Iterable[Step]) -> list[CheckRecord]:
    """Return the records of steps, without those that are missing or not valid."""
    from opmatrix.records.verdict import read_check  # imported here: not every command reads records

    records = []
    for step in steps:
        if step.verdict:
            with suppress(OSError, ValueError):
                records.append(read_check(Path(step.verdict)))
    return records


def _chosen(control: TaskControl) -> Iterator[Task]:
    """Yield the selected tasks and those that they depend on."""
    return (control.tasks[name] for name in with_dependencies(control.tasks, control.selected_tasks))


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


class Compat(Run):
    """Run the steps of the group `compat`, which `doit` leaves out, and what they need."""

    name = COMPAT
    doc_purpose = "what works beyond eager mode: torch.compile, AOTInductor, vmap, autocast, torch.func"
    doc_usage = "[OPERATOR ...]"
    doc_description = (
        "Runs each operator in torch.compile with dynamic sizes, a package of AOTInductor, torch.vmap, "
        "torch.autocast and torch.func, and compares the values with plain calls. A row works, or is refused with the "
        "reason. A result is kept until the operator or torch changes, and the next report has it. Without an "
        "operator: all of them."
    )

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        """Run the steps; print the rows of all that were asked for."""
        code = super().execute(params, [*args] or [COMPAT])  # without a name doit takes its default tasks
        from rich.console import Console

        from opmatrix.report.terminal import show_compat

        asked = {*(self.sel_tasks or ())}
        steps = [task.step for task in self.task_list if isinstance(task, StepTask) and task.step.group == COMPAT]
        show_compat(_read_checks(step for step in steps if {COMPAT, step.task} & asked), Console())
        return code

    def selected(self, names: Sequence[str], tasks: Sequence[Task]) -> list[str]:
        """Return the steps of the operators `names`; the group for its own name. Raises InvalidCommand for another
        one."""
        if [*names] == [COMPAT]:
            return [COMPAT]
        steps = [task.step for task in tasks if isinstance(task, StepTask)]
        found = [(name, [s.task for s in steps if s.operator == name and s.group == COMPAT]) for name in names]
        for name, own in found:
            if not own:
                known = dict.fromkeys(s.operator for s in steps if s.operator)
                if name in known:
                    raise InvalidCommand(f"{name} has no operator of its own in torch, so there is nothing to run")
                raise InvalidCommand(f"no operator {name!r}{did_you_mean(name, known)}; there is: {', '.join(known)}")
        return [task for _, own in found for task in own]


def select_part(control: TaskControl, asked: str, paths: Paths) -> TaskControl:
    """Return a TaskControl with the part `asked`, such as 2/5, of what `control` selects, and with the tasks that it
    needs. The report is about that part. Raises UsageError for what is no part, InvalidCommand for a wheel."""
    from opmatrix.plan.shards import Shard, divide, targets  # imported here: most runs have no parts

    shard = Shard.parse(asked)
    names = [[name] if isinstance(control.tasks[name], StepTask) else control.tasks[name].task_dep
             for name in control.selected_tasks]  # fmt: skip
    chosen = {name: control.tasks[name].step for of_one in names for name in of_one}
    if wheel := next((name for name, step in chosen.items() if step.group in (DIST, LINK)), None):
        raise InvalidCommand(f"--shard {shard}: {wheel!r} needs every cell of the plan, so run it without --shard")
    report = chosen.pop(REPORT, None)
    needs = {name: control.tasks[name].task_dep for name in chosen}
    own = divide(targets(chosen, needs), of=shard.of, needs=needs)[shard.number - 1]
    kept = {*with_dependencies(control.tasks, [step.task for step in own])}
    tasks = [task for name, task in control.tasks.items() if name in kept]
    # By operator, each shard with another one first: shards that begin together then build the libraries of different
    # operators, and find those of the others in the shared cache.
    operators = sorted({step.operator for step in own})
    first = len(operators) * (shard.number - 1) // shard.of
    turn = {name: (place - first) % len(operators) for place, name in enumerate(operators)}
    selected = [step.task for step in sorted(own, key=lambda step: turn[step.operator])]
    if report:
        tasks.append(StepTask(_report_of_part(report, own, control.tasks.values(), shard, paths)))
        selected.append(REPORT)
    part = TaskControl(tasks)
    part.selected_tasks = selected  # without `process`, which would parse options of tasks a second time
    return part


def _report_of_part(report: Step, own: Iterable[Step], tasks: Iterable[Task], shard: Shard, paths: Paths) -> Step:
    """Return the report step about the verdicts of the steps `own`, which it reads from a file."""
    verdicts = {step.verdict: step for step in own if step.verdict}
    write_text(paths.shard_list, "".join(f"{path}\n" for path in sorted(verdicts)))
    elsewhere = {task.step.verdict for task in tasks if isinstance(task, StepTask)} - verdicts.keys()
    return replace(
        report,
        asks=(*report.asks, "--shard", str(shard)),
        reads=(*(path for path in report.reads if path not in elsewhere), str(paths.shard_list)),
        after=tuple(task for task in report.after if task in {step.task for step in verdicts.values()}),
    )
