"""The reporter of `doit watch`, `doit -r brief`: the verdict of a run with its cause, in at most nine lines.

The reporter for programs, `doit -r jsonl`: one JSON object per event and line.
docs/how-to/continuous-integration.md has the format.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from doit.exceptions import BaseFail
from doit.task import Task

from opmatrix.basics.errors import many, one_line, printable
from opmatrix.basics.terminal import for_shell, width_of, wrapped
from opmatrix.engine.progress_reporter import FETCHED, Progress, StepReporter, print_above
from opmatrix.engine.step_failure import StepBlocked, StepFailed
from opmatrix.engine.tasks import StepTask

if TYPE_CHECKING:
    from opmatrix.engine.shared_results import Origin


LINES = 9  # with the line of what was saved, ten
_MOST = LINES - 2  # of causes; the last line may be as long as two
_COLUMNS = 80  # where there is no terminal
_VERDICT = re.compile(r"^(OK|FAILED)\b", re.MULTILINE)
_COLOURS = {"OK": "\x1b[32m", "FAILED": "\x1b[31m"}
_PLAIN = "\x1b[0m"


class Brief(Progress):
    """A progress line in a terminal; at the end one line, or the first cause and where the others are."""

    desc = "the verdict and its cause, in at most nine lines"

    def initialize(self, tasks: Mapping[str, Task], selected_tasks: Iterable[str]) -> None:
        super().initialize(tasks, selected_tasks)
        self._shown: list[str] = []
        self._steps = [task.step for name in self._selected if isinstance(task := tasks[name], StepTask)]

    def _show_end(self, task: StepTask, word: str, more: str = "") -> None:
        """Count a step; the progress line shows how many failed."""
        with self._guard:
            self._running.pop(task.name, None)
            self._ended.add(task.name)
            self._update()

    def _print_long_steps(self) -> None:
        """Print nothing before the end, where there is no progress line."""

    def add_failure(self, task: Task, fail: BaseFail) -> None:
        """Show the first cause at once: a wrong kernel fails within a second, and in all cells some seconds later."""
        known = bool(self._failures)
        super().add_failure(task, fail)
        if not known and self._failures:
            from opmatrix.engine.causes import head  # imported here: most runs have no failure

            (one,) = self._failures
            self._shown = head(one, width=self._width, most=_MOST)
            self._show(self._shown)

    def complete_run(self) -> None:
        self._ended_all.set()
        if self._display:
            self._display.stop()
            self._display = None
        if sys.exc_info()[0] is KeyboardInterrupt:  # a save during the run, or Ctrl-C: there is no verdict
            return
        if self._report_failure and not self._failures:
            self._causes.add(self._report_failure)
        lines: list[str] = []
        if not self._failures:
            last = [self._green()]
        else:
            from opmatrix.engine.causes import in_lines  # imported here: most runs have no failure

            lines = in_lines([*self._failures], width=self._width, most=_MOST, shown=self._shown)
            last = wrapped(f"{self._last_line()}; more: {self._rest()}", self._width).split("\n")
        notes = [one_line(note) for note in (*self.runtime_errors, *self._notes)]
        if len(notes) > (room := LINES - len(self._shown) - len(lines) - len(last)):
            notes = [*notes[: room - 1], many(len(notes) - room + 1, "more note")] if room > 0 else []
        notes = [note if len(note) <= self._width else f"{note[: self._width - 4]} ..." for note in notes]
        self._show([*lines, *notes, *last])

    def _show(self, lines: Sequence[str]) -> None:
        """Print lines, above the progress line if there is one; on a terminal, with the verdict in colours."""
        text = printable(for_shell("\n".join(lines)))
        if self.outstream.isatty() and not os.environ.get("NO_COLOR"):
            text = _VERDICT.sub(lambda word: f"{_COLOURS[word[0]]}{word[0]}{_PLAIN}", text)
        if self._display:
            print_above(self._display, text)
        else:
            self.outstream.write(text + "\n")
            self.outstream.flush()

    @property
    def _width(self) -> int:
        return width_of(self.outstream) or _COLUMNS

    def _green(self) -> str:
        """Return ``OK in 2.1 s: 82 cells verified, 4 unsupported; 15 steps ran``, of the chosen cells."""
        from opmatrix.records.verdict import read_head  # imported here: other reporters do without
        from opmatrix.report.records import OUTCOMES

        cells: Counter[str] = Counter()
        weak = 0
        for step in self._steps:
            if step.verdict and (step.check or step.cell):
                found = read_head(Path(step.verdict))
                weak += bool(found.get("weak"))
                cells[found.get("outcome", "")] += step.check is None
        numbers = [f"{cells[outcome]} {outcome}" for outcome in OUTCOMES if cells[outcome]]
        if numbers:
            numbers[0] = numbers[0].replace(" ", " cell " if cells.total() == 1 else " cells ", 1)
        ran = [f"{many(self._counts['run'], 'step')} ran" if self._counts["run"] else ""]
        ran += [f"{self._counts[FETCHED]} {FETCHED}" if self._counts[FETCHED] else ""]
        done = ", ".join(filter(None, ran)) or "all up to date"
        parts = [", ".join(numbers), f"{many(weak, 'check')} weak" if weak else "", done]
        return f"OK in {time.monotonic() - self._began:.1f} s: {'; '.join(filter(None, parts))}"


class JsonLines(StepReporter):
    """Writes each event when it happens; doit's reporter "json" writes once, at the end."""

    desc = "one JSON object a line, as it happens: event, step, outcome, seconds, reason"

    def __init__(self, outstream: IO[str], options: Mapping[str, Any]) -> None:
        super().__init__(outstream, options)
        self._started: dict[str, float] = {}
        self._ends: dict[str, tuple[tuple[float, int] | None, Origin | None]] = {}

    def initialize(self, tasks: Mapping[str, Task], selected_tasks: Iterable[str]) -> None:
        super().initialize(tasks, selected_tasks)
        self._write_event("begin", steps=self._total)

    def execute_task(self, task: Task) -> None:
        if isinstance(task, StepTask):
            self._started[task.name] = time.monotonic()
            reasons = self._expected.reasons if self._expected else {}
            self._write_event("start", step=task.name, reason=reasons.get(task.name, "asked for"))

    def add_end(self, task: Task, usage: tuple[float, int] | None, origin: Origin | None) -> None:
        self._ends[task.name] = usage, origin

    def add_server(self, name: str, seconds: float, cpu: float) -> None:
        self._write_event("server", server=name, seconds=round(seconds, 3), cpu=round(cpu, 3))

    def add_success(self, task: Task) -> None:
        self._end(task, "succeeded")

    def add_failure(self, task: Task, fail: BaseFail) -> None:
        blocked = isinstance(fail, StepBlocked)
        reason = fail.detail if blocked else fail.summary if isinstance(fail, StepFailed) else fail.message
        place: dict[str, Any] = {}
        if isinstance(fail, StepFailed) and (cause := fail.cause).file:
            place = {"file": cause.file} | ({"line": cause.line} if cause.line else {})
        self._end(task, "blocked" if blocked else "failed", reason=for_shell(reason), **place)

    def skip_uptodate(self, task: Task) -> None:
        self._end(task, "up-to-date")

    def skip_ignore(self, task: Task) -> None:
        self._end(task, "ignored")

    def note(self, text: str) -> None:
        self._write_event("note", reason=for_shell(text))

    def complete_run(self) -> None:
        for error in self.runtime_errors:
            self.note(error)
        self._write_event("finish", seconds=round(time.monotonic() - self._began, 3))

    def _end(self, task: Task, outcome: str, **more: Any) -> None:
        if isinstance(task, StepTask):
            now = time.monotonic()
            seconds = now - self._started.pop(task.name, now)  # 0 for a step that did not run
            usage, origin = self._ends.pop(task.name, (None, None))
            if origin:
                more = {"from": origin.url, **({"signer": origin.signer} if origin.signer else {}), **more}
            if usage:
                more = {"cpu": round(usage[0], 3), "memory": usage[1], **more}
            self._write_event("end", step=task.name, outcome=outcome, seconds=round(seconds, 3), **more)

    def _write_event(self, event: str, **fields: Any) -> None:
        with self._guard:
            self.write(json.dumps({"event": event, **fields}) + "\n")
            self.outstream.flush()
