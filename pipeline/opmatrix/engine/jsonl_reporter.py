"""The reporter for programs, `doit -r jsonl`: one JSON object per event and line. docs/events.md has the format."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any

from doit.exceptions import BaseFail
from doit.task import Task

from opmatrix.engine.doit_tasks import StepTask
from opmatrix.engine.progress_reporter import StepReporter
from opmatrix.engine.step_failure import StepBlocked, StepFailed
from opmatrix.terminal_text import for_shell

if TYPE_CHECKING:
    from opmatrix.engine.shared_results import Origin


class JsonLines(StepReporter):
    """Writes each event when it happens; doit's reporter "json" writes once, at the end."""

    desc = "one JSON object a line, as it happens: event, step, outcome, seconds, reason"

    def __init__(self, outstream: IO[str], options: Mapping[str, Any]) -> None:
        super().__init__(outstream, options)
        self._started: dict[str, float] = {}
        self._usage: dict[str, tuple[float, int]] = {}
        self._origins: dict[str, Origin] = {}

    def initialize(self, tasks: Mapping[str, Task], selected_tasks: Iterable[str]) -> None:
        super().initialize(tasks, selected_tasks)
        self._write_event("begin", steps=self._total)

    def execute_task(self, task: Task) -> None:
        """Called by worker threads, too."""
        if isinstance(task, StepTask):
            self._started[task.name] = time.monotonic()
            reasons = self._expected.reasons if self._expected else {}
            self._write_event("start", step=task.name, reason=reasons.get(task.name, "asked for"))

    def add_usage(self, task: Task, cpu: float, memory: int) -> None:
        """Called by worker threads, too."""
        self._usage[task.name] = cpu, memory

    def add_fetched(self, task: Task, origin: Origin) -> None:
        """Called by worker threads, too."""
        self._origins[task.name] = origin

    add_ran_elsewhere = add_fetched

    def add_server(self, name: str, seconds: float, cpu: float) -> None:
        """Called by worker threads, too."""
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
            if origin := self._origins.pop(task.name, None):
                more = {"from": origin.url, **({"signer": origin.signer} if origin.signer else {}), **more}
            if usage := self._usage.pop(task.name, None):
                cpu, memory = usage
                more = {"cpu": round(cpu, 3), "memory": memory, **more}
            self._write_event("end", step=task.name, outcome=outcome, seconds=round(seconds, 3), **more)

    def _write_event(self, event: str, **fields: Any) -> None:
        with self._guard:
            self.write(json.dumps({"event": event, **fields}) + "\n")
            self.outstream.flush()
