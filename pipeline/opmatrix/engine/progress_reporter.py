"""What a user sees of a run: progress while it runs, then the report, then every failure with its own message."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from doit.exceptions import BaseFail
from doit.reporter import ConsoleReporter
from doit.task import Task

from opmatrix.declaration.placeholders import reminder
from opmatrix.engine.doit_tasks import DIST, REPORT, StepTask
from opmatrix.engine.step_failure import StepBlocked, StepFailed, read_output, replays
from opmatrix.project.command_text import for_shell
from opmatrix.project.paths import Paths

ALL = 2  # the verbosity that shows the output of every step

if TYPE_CHECKING:
    from opmatrix.engine.forecast import Expected
    from opmatrix.engine.live_line import Display


class StepReporter(ConsoleReporter):
    """A reporter that may ask what a run is expected to do, and that is told what doit's own are not."""

    expect: Callable[[], Expected]

    def foresee(self) -> None:
        """Be told that a step is about to begin: the last moment to ask what is expected, before its state changes."""
        raise NotImplementedError

    def note(self, text: str) -> None:
        """Be told something that a person should know."""
        raise NotImplementedError

    def add_cpu(self, task: Task, cpu: float) -> None:
        """Be told the CPU seconds of a step, with all that it started. Called by worker threads, too."""

    def add_server(self, name: str, seconds: float, cpu: float) -> None:
        """Be told of a server that has started, and what it took. Called by worker threads, too."""


class Progress(StepReporter):
    """A live line in a terminal, a plain line per step elsewhere."""

    desc = "count, elapsed and expected time, running steps; failures at the end"

    def __init__(self, outstream: IO[str], options: Mapping[str, Any]) -> None:
        super().__init__(outstream, options)
        self._live = outstream.isatty() and os.environ.get("TERM") != "dumb"
        self._display: Display | None = None
        self._expected: Expected | None = None
        self._running: dict[str, float] = {}
        self._over: set[str] = set()
        self._guard = threading.Lock()
        self._began = time.monotonic()
        self._ran = self._fresh = self._ignored = self._total = 0
        self._failed: list[StepFailed] = []
        self._blocked: list[StepBlocked] = []
        self._notes: list[str] = []
        self._report_ran = False
        self._operators: set[str] = set()  # of which a step ran

    def write(self, text: str) -> None:
        super().write(for_shell(text))

    def initialize(self, tasks: Mapping[str, Task], selected_tasks: Iterable[str]) -> None:
        self._total = sum(isinstance(tasks[name], StepTask) for name in with_dependencies(tasks, selected_tasks))

    def foresee(self) -> None:
        if self._live and not self._expected:
            self._expected = self.expect()

    def execute_task(self, task: Task) -> None:
        """Show that a task begins. Called by worker threads, too."""
        if isinstance(task, StepTask):
            with self._guard:
                self._running[task.name] = time.monotonic()
                self._show_running()

    def add_success(self, task: Task) -> None:
        if isinstance(task, StepTask):
            self._ran += 1
            self._operators.add(task.step.operator)
            self._report_ran |= task.name == REPORT
            self._show_end(task, "")
            if task.name == DIST:
                self._name_wheel()
            elif task.verbosity == ALL and task.name != REPORT:
                self._say(read_output(Paths(Path.cwd()).log(task.name)))

    def add_failure(self, task: Task, fail: BaseFail) -> None:
        if not isinstance(task, StepTask):
            return
        if isinstance(fail, StepBlocked):
            self._blocked.append(fail)
            self._over.add(task.name)
            return
        self._report_ran |= task.name == REPORT
        self._failed.append(fail)
        self._show_end(task, " FAILED")

    def skip_uptodate(self, task: Task) -> None:
        self._fresh += isinstance(task, StepTask)
        self._over.add(task.name)
        if task.name == DIST:  # which runs only where it is asked for
            self._name_wheel()

    def _name_wheel(self) -> None:
        self.note(read_output(Paths(Path.cwd()).log(DIST)))

    def skip_ignore(self, task: Task) -> None:
        if isinstance(task, StepTask):
            self._ignored += 1

    def note(self, text: str) -> None:
        """Say `text` at the end."""
        self._notes.append(text)

    def complete_run(self) -> None:
        if self._display:
            self._display.stop()
        if self._report_ran:
            self.write(read_output(Paths(Path.cwd()).log(REPORT)) + "\n")
        reminders = [reminder(Paths(Path.cwd()), name) for name in sorted(self._operators) if name]
        for line in [*self._notes, *filter(None, reminders)]:
            self.write(line + "\n")
        # What the compiler said comes last, so that nothing scrolls it away.
        for failure in sorted(self._failed, key=lambda f: f.step.server is None):
            if not self._told(failure):
                self.write(_describe(failure))
        for cause, count in Counter(b.cause.step.task for b in self._blocked).items():
            self.write(f"not run because {cause} failed: {count} step{'s' * (count > 1)}\n")
        for error in self.runtime_errors:
            self.write(f"{error}\n")
        self.write(self._summary() + "\n")

    def _told(self, failure: StepFailed) -> bool:
        """Whether the report says it already: it holds all verdicts, those that say the same put together."""
        return failure.step.task == REPORT or (self._report_ran and failure.step.verdict is not None)

    @property
    def _done(self) -> int:
        return self._ran + self._fresh + self._ignored + len(self._failed) + len(self._blocked)

    def _summary(self) -> str:
        steps = f"{self._total} step{'s' * (self._total != 1)}"
        if self._fresh == self._total:
            return f"{steps}, all up to date"
        counts = {
            "run": self._ran,
            "up to date": self._fresh,
            "failed": len(self._failed),
            "ignored, as `doit ignore` was told": self._ignored,
            "not run": self._total - self._ran - self._fresh - self._ignored - len(self._failed),
        }
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"{steps} in {time.monotonic() - self._began:.1f} s: {told}"

    def _show_running(self) -> None:
        if self._live and not self._display:
            from opmatrix.engine.live_line import Display  # rich costs 50 ms: only where it shows something

            self._display = Display(self.outstream, self._total)
        self._update()

    def _update(self) -> None:
        if self._display and self._expected:
            left = self._expected.left(self._over)
            self._display.update(done=self._done, running=list(self._running), left=left)

    def _show_end(self, task: StepTask, word: str) -> None:
        with self._guard:
            seconds = time.monotonic() - self._running.pop(task.name, time.monotonic())
            line = f"[{self._done}/{self._total}] {seconds:.1f}s {task.name}{word}"
            self._over.add(task.name)
            self._update()
            if word or not self._display:
                self._say(line)

    def _say(self, text: str) -> None:
        if self._display:
            self._display.write(text)
        elif text:
            self.write(text + "\n")
            self.outstream.flush()


def with_dependencies(tasks: Mapping[str, Task], selected: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(selected)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += tasks[name].task_dep
    return found


def _describe(failure: StepFailed) -> str:
    lines = [f"{failure.step.task}: {failure.summary}"]
    lines += [f"  {line}" for line in failure.output.splitlines()]
    if failure.log:
        lines.append(f"  Log: {os.path.relpath(failure.log)}")
    lines += [f"  {line}" for line in replays(failure)]
    return "\n" + "\n".join(lines) + "\n\n"
