"""The default reporter, `doit -r progress`: each failure as it happens, then details, the report and a summary."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from doit.exceptions import BaseFail
from doit.reporter import ConsoleReporter
from doit.task import Task

from opmatrix.basics.errors import many, printable
from opmatrix.basics.step_log import EVERY, last_progress, spent
from opmatrix.basics.terminal import for_shell, width_of, wrapped
from opmatrix.declaration.source_files import reminder
from opmatrix.engine.step_failure import StepBlocked, StepFailed, read_output
from opmatrix.engine.tasks import DIST, REPORT, StepTask, is_reported, with_dependencies
from opmatrix.project.paths import Paths

_IGNORED = "ignored by `doit ignore`"
FETCHED = "from the shared cache"
_OUTCOMES = ("run", FETCHED, "up to date", "failed", _IGNORED)  # in the order of the last line
_LONG = 2.0  # seconds after which the live line shows how far a step is
_SHOWN = 3  # such steps at a time
ALL = 2  # doit -v 2: show the output of every step

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress as LiveLine

    from opmatrix.engine.causes import Causes, OneCause
    from opmatrix.engine.forecast import Expected
    from opmatrix.engine.shared_results import Origin


class StepReporter(ConsoleReporter):
    """A doit reporter with what doit's reporters lack: a forecast, notes, CPU seconds and starts of servers. Worker
    threads, too, call `execute_task`, `add_end` and `add_server`."""

    expect: Callable[[], Expected] | None = None  # set by `doit run`
    annotate = False  # whether to print annotations for GitHub; set by `doit run`

    def __init__(self, outstream: IO[str], options: Mapping[str, Any]) -> None:
        super().__init__(outstream, options)
        self._began = time.monotonic()
        self._expected: Expected | None = None
        self._guard = threading.Lock()
        self._total = 0
        self._selected: set[str] = set()  # with the dependencies of what is selected

    def initialize(self, tasks: Mapping[str, Task], selected_tasks: Iterable[str]) -> None:
        """Count the steps that are selected, with their dependencies."""
        self._selected = {*with_dependencies(tasks, selected_tasks)}
        self._total = sum(isinstance(tasks[name], StepTask) for name in self._selected)

    def step_begins(self) -> None:
        """Make the forecast before the first step begins, because that changes the state."""
        if self.expect:
            self._expected = self._expected or self.expect()

    def note(self, text: str) -> None:
        """Print a message to the user."""

    def add_end(self, task: Task, usage: tuple[float, int] | None, origin: Origin | None) -> None:
        """Take how a step ended: the CPU seconds of it and all its child processes, with the bytes of memory of the
        largest of these processes, or None for one that did not run; and from where its result came, if not from
        here."""

    def add_server(self, name: str, seconds: float, cpu: float) -> None:
        """Take the seconds and CPU seconds that a server took to start."""


class Progress(StepReporter):
    """A progress line in a terminal, a line per step elsewhere."""

    desc = "count, elapsed and expected time, running steps; failures at the end"

    def __init__(self, outstream: IO[str], options: Mapping[str, Any]) -> None:
        super().__init__(outstream, options)
        self._live = outstream.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = outstream.isatty() or "FORCE_COLOR" in os.environ
        self._display: LiveLine | None = None
        self._running: dict[str, float] = {}
        self._ended: set[str] = set()
        self._fetched: set[str] = set()
        self._counts = Counter(dict.fromkeys(_OUTCOMES, 0))
        self._failures: Causes | None = None
        self._report_failure: StepFailed | None = None
        self._blocked = 0
        self._notes: list[str] = []
        self._report_ran = False
        self._recorded = False  # whether a step ran that the report covers
        self._operators: set[str] = set()  # those of which a step ran
        self._ended_all = threading.Event()
        self._lines: threading.Thread | None = None  # prints how far long steps are, where no live line shows it

    def write(self, text: str) -> None:
        text = printable(for_shell(text), colours=self._colours)
        super().write(wrapped(text, width_of(self.outstream)))

    def step_begins(self) -> None:
        if self._live:
            super().step_begins()

    def execute_task(self, task: Task) -> None:
        if isinstance(task, StepTask):
            with self._guard:
                self._running[task.name] = time.monotonic()
                if self._live and not self._display:
                    self._display = live_line(self.outstream, self._total, long_steps=self._long_steps)
                elif not self._live and not self._lines:
                    self._lines = threading.Thread(target=self._print_long_steps, daemon=True)
                    self._lines.start()
                self._update()

    def add_end(self, task: Task, usage: tuple[float, int] | None, origin: Origin | None) -> None:
        if usage is None:
            self._fetched.add(task.name)

    def add_success(self, task: Task) -> None:
        if isinstance(task, StepTask):
            self._counts[FETCHED if task.name in self._fetched else "run"] += 1
            self._operators.add(task.step.operator)
            self._recorded |= is_reported(task.step)
            self._report_ran |= task.name == REPORT
            self._show_end(task, "")
            if task.step.group == DIST:
                self.note(_output(task.name))
            elif task.step.check and task.step.check.check == "gradient" and (notes := _output(task.name)):
                self.note(notes)  # what no sample covers
            elif task.verbosity == ALL and task.name != REPORT:
                self._print(_output(task.name))

    def add_failure(self, task: Task, fail: BaseFail) -> None:
        if not isinstance(task, StepTask):
            return
        if isinstance(fail, StepBlocked):
            self._blocked += 1
            self._causes.add_blocked(fail)
            if task.name == DIST:
                self.note(f"no wheel is built, because {fail.cause.step.task} failed")
            self._ended.add(task.name)
            return
        self._recorded |= is_reported(task.step)
        if task.name == REPORT:  # it fails where a cell does
            self._report_ran, self._report_failure = True, fail
            self._counts["run" if self._failures else "failed"] += 1
            self._show_end(task, "" if self._failures else " FAILED")
            return
        self._counts["failed"] += 1
        from opmatrix.engine.causes import brief

        if self._causes.add(fail):  # in a terminal the progress line counts them
            self._show_end(task, "" if self._display else " FAILED")
        else:
            self._show_end(task, " FAILED", brief(fail.cause, width_of(self.outstream)))

    def skip_uptodate(self, task: Task) -> None:
        self._counts["up to date"] += isinstance(task, StepTask)
        self._ended.add(task.name)
        if task.name == REPORT:
            self._recorded = False  # the steps before it had the same results
        if isinstance(task, StepTask) and task.step.group == DIST:
            self.note(_output(task.name))

    def skip_ignore(self, task: Task) -> None:
        self._counts[_IGNORED] += isinstance(task, StepTask)

    def note(self, text: str) -> None:
        """Print `text` at the end of the run."""
        self._notes.append(text)

    def complete_run(self) -> None:
        self._ended_all.set()
        if self._display:
            self._display.stop()
        causes = [*self._failures] if self._failures else []
        for one in causes:
            from opmatrix.engine.causes import details

            if not (self._report_ran and one.first.step.verdict is not None):  # the report has the others
                self.write(details(one))
        if self._report_ran:
            self.write(_output(REPORT) + "\n")
        reminders = [reminder(Paths(Path.cwd()), name) for name in sorted(self._operators) if name]
        for line in [*self._notes, *filter(None, reminders)]:
            self.write(line + "\n")
        for error in self.runtime_errors:
            self.write(f"{error}\n")
        report = Paths(Path.cwd()).report_data
        if self._recorded and not self._report_ran and report.is_file():
            self.write(f"{os.path.relpath(report.parent)}/ is of an earlier run; `doit` writes it with these results\n")
        self._write_summary(causes)
        self.write(self._last_line() + "\n")

    def _write_summary(self, causes: Sequence[OneCause]) -> None:
        if self._report_failure and not causes:  # such as a verdict that is not valid
            self._causes.add(self._report_failure)
            causes = [*self._causes]
        if not causes:
            return
        from opmatrix.engine.causes import annotation, summary  # imported here: most runs have no failure

        if self.annotate:
            for one in causes:
                line = annotation(one.first.cause, title=one.steps, prefix=folder_in_repository())
                self.outstream.write(for_shell(line) + "\n")
        self.write("\n".join(summary(causes, rest=self._rest(), width=width_of(self.outstream))) + "\n")

    def _rest(self) -> str:
        """Return where all failures are."""
        paths = Paths(Path.cwd())
        return os.path.relpath(paths.report_files[-1] if self._report_ran else paths.log("").parent)

    @property
    def _causes(self) -> Causes:
        if self._failures is None:
            from opmatrix.engine.causes import Causes  # imported here: most runs have no failure

            self._failures = Causes()
        return self._failures

    def _done(self) -> int:
        return self._counts.total() + self._blocked

    def _last_line(self) -> str:
        steps = many(self._total, "step")
        if self._counts["up to date"] == self._total:
            return f"{steps}, all up to date"
        counts = {**self._counts, "not run": self._total - self._counts.total()}
        parts = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"{steps} in {time.monotonic() - self._began:.1f} s: {parts}"

    def _update(self) -> None:
        if self._display and self._expected:
            left, failed = self._expected.left(self._ended), self._counts["failed"]
            shown = describe(list(self._running), left=left, failed=failed)
            self._display.update(self._display.task_ids[0], completed=self._done(), description=shown)

    def _long_steps(self) -> list[str]:
        """Return a line for each step that runs long: its seconds, and how far it is. Called by rich's thread."""
        now, usual = time.monotonic(), self._expected.seconds if self._expected else {}
        running = [(name, now - began) for name, began in list(self._running.items()) if now - began >= _LONG]
        lines = []
        for name, seconds in running[:_SHOWN]:
            about = f" of about {spent(usual[name])}" if usual.get(name, 0) > seconds else ""
            far = last_progress(Paths(Path.cwd()).log(name), seconds=seconds)
            lines.append(printable(f"{name} {spent(seconds)}{about}{far and ': '}{far}"))
        return lines

    def _print_long_steps(self) -> None:
        """Print how far each step is that runs longer than `EVERY` seconds, so often, and the rarer the longer."""
        following: dict[str, float] = {}
        while not self._ended_all.wait(_LONG / 2):
            with self._guard:
                for name, began in self._running.items():
                    seconds = time.monotonic() - began
                    if seconds >= following.setdefault(name, EVERY) and not self._ended_all.is_set():
                        following[name] = seconds + max(EVERY, seconds / 10)
                        far = last_progress(Paths(Path.cwd()).log(name), seconds=seconds)
                        self._print(f"[{self._done()}/{self._total}] {seconds:.0f}s so far {name}{far and ': '}{far}")

    def _show_end(self, task: StepTask, word: str, more: str = "") -> None:
        with self._guard:
            seconds = time.monotonic() - self._running.pop(task.name, time.monotonic())
            line = f"[{self._done()}/{self._total}] {seconds:.1f}s {task.name}{word}{more}"
            self._ended.add(task.name)
            self._update()
            if word or not self._display:
                self._print(line)

    def _print(self, text: str) -> None:
        if self._display:
            print_above(self._display, wrapped(printable(for_shell(text)), width_of(self.outstream)))
        elif text:
            self.write(text + "\n")
            self.outstream.flush()


def live_line(stream: IO[str], total: int, *, long_steps: Callable[[], Sequence[str]]) -> LiveLine:
    """Show the progress line until `stop`: steps done of all, elapsed time, and what `describe` returns. Below it are
    the lines that `long_steps` returns whenever the line is drawn. rich honours NO_COLOR."""
    from rich.console import Console  # imported here: it takes 50 ms
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Lines(Progress):
        def get_renderables(self) -> Iterable[RenderableType]:
            yield from super().get_renderables()
            for line in long_steps():
                yield Text(f"  {line}", no_wrap=True, overflow="ellipsis")

    columns = MofNCompleteColumn(), BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.description}")
    lines = Lines(*columns, console=Console(file=stream), transient=True, refresh_per_second=4)
    lines.add_task("", total=total)
    lines.start()
    return lines


def describe(running: Sequence[str], *, left: float, failed: int = 0) -> str:
    """Return what follows the elapsed time: ``at most 1:20 left  2 failed  compile:group_norm and 1 more``. `left` is
    at most how many seconds remain, 0 if unknown."""
    time = f"at most {spent(left)} left  " if left >= 1 else ""
    wrong = f"{failed} failed  " if failed else ""
    more = f" and {len(running) - 1} more" if len(running) > 1 else ""
    return time + wrong + (f"{running[0]}{more}" if running else "")


def print_above(display: LiveLine, text: str) -> None:
    display.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _output(task: str) -> str:
    return read_output(Paths(Path.cwd()).log(task))


def folder_in_repository() -> str:
    """Return the project's folder in the repository that GitHub checked out, as ``tools/ops/``, or "" for its root."""
    root = os.environ.get("GITHUB_WORKSPACE", "")
    inside = os.path.relpath(Path.cwd(), root) if root else "."
    return "" if inside.startswith(".") else f"{inside}/"
