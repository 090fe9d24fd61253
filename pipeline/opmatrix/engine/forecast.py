"""Predict a run: which steps run, which may run, why, and how long they take. It runs and writes nothing.

`doit why`, `doit list --status` and `doit info` print it; the progress line takes the time left from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from doit.control import TaskControl
from doit.task import Task

from opmatrix.engine.database import Journal
from opmatrix.engine.doit_tasks import StepTask
from opmatrix.engine.explain_change import differences
from opmatrix.engine.longest_path import estimated
from opmatrix.engine.up_to_date import State, step_detail

# "run": the step runs. "wait": it runs if a step before it changes one of its inputs. "error": it cannot run.
Fate = Literal["up-to-date", "run", "wait", "error", "ignore"]

_MOST_WRITERS = 2  # so many steps before it are named


@dataclass(frozen=True, kw_only=True)
class Forecast:
    fate: Fate
    reasons: tuple[str, ...] = ()


def forecast(tasks: Mapping[str, Task], names: Iterable[str], state: State) -> dict[str, Forecast]:
    """Return the forecast of each step in `names` and of their dependencies, dependencies first. `tasks`: of a
    TaskControl, whose `task_dep` also has the steps that write a step's inputs."""
    writers = {path: task.name for task in tasks.values() for path in task.targets}
    forecasts: dict[str, Forecast] = {}
    visited: set[str] = set()

    def visit(name: str) -> None:
        if name not in visited:
            visited.add(name)
            for dependency in tasks[name].task_dep:
                visit(dependency)
            if isinstance(task := tasks[name], StepTask):
                forecasts[name] = _forecast_step(task, state, writers, forecasts)

    for name in names:
        visit(name)
    return forecasts


def fate_of(task: Task, forecasts: Mapping[str, Forecast]) -> Fate:
    """Return the fate of a step; of a group, the most severe fate of its steps."""
    if task.name in forecasts:
        return forecasts[task.name].fate
    fates = {forecasts[name].fate for name in task.task_dep if name in forecasts}
    order: tuple[Fate, ...] = ("error", "run", "wait")
    return next((fate for fate in order if fate in fates), "up-to-date")


@dataclass(frozen=True)
class Expected:
    """The expected seconds of each step that runs, known when the run begins, and the reason why it runs."""

    seconds: Mapping[str, float]
    reasons: Mapping[str, str]
    cores: int

    def left(self, done: set[str]) -> float:
        """Return at most how many seconds are left: a step that waits for another may turn out up to date."""
        return sum(seconds for step, seconds in self.seconds.items() if step not in done) / self.cores


def expected(control: TaskControl, state: State, *, cores: int) -> Expected:
    """Estimate each step by its last duration, else by the mean of its group, else 0."""
    forecasts = forecast(control.tasks, control.selected_tasks, state)
    seconds = estimated(state.journal.durations(), usual={}, least=0.0)
    running = {step: seconds(step) for step, one in forecasts.items() if one.fate in ("run", "wait")}
    return Expected(running, {step: "; ".join(one.reasons) for step, one in forecasts.items() if one.reasons}, cores)


def _forecast_step(
    task: StepTask, state: State, writers: Mapping[str, str], forecasts: Mapping[str, Forecast]
) -> Forecast:
    if state.status_is_ignore(task):
        return Forecast(fate="ignore", reasons=("`doit ignore` excludes it",))
    # The digest of an input that another step will write is not known yet.
    unsettled = {p: writers[p] for p in task.file_dep if p in writers and forecasts[writers[p]].fate != "up-to-date"}
    try:
        inputs, outputs = state.digests(task)
    except OSError as error:
        return Forecast(fate="error", reasons=(f"{error.filename}: {error.strerror}",))
    unsettled = {state.relative(path): writer for path, writer in unsettled.items()}
    if lacking := [path for path in state.missing_inputs(task, inputs) if path not in unsettled]:
        return Forecast(fate="error", reasons=(f"its input {lacking[0]} does not exist, and no step writes it",))
    before = state.journal.detail(task.name)
    known = before["inputs"] if before else {}
    inputs |= {path: known[path] for path in unsettled if path in known}
    detail = step_detail(task, inputs, outputs)
    if not state.is_up_to_date(task.name, detail):
        return Forecast(fate="run", reasons=tuple(_reasons(task, state.journal, before, detail)))
    if unsettled:
        return Forecast(fate="wait", reasons=tuple(_wait_reasons(unsettled)))
    return Forecast(fate="up-to-date")


def _reasons(task: StepTask, journal: Journal, before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[str]:
    if before is None:
        return ["did not succeed yet" if task.name in journal.steps else "never ran"]
    reasons = differences(before, now, journal.meaning)
    if journal.key(task.name) is None:
        reasons.append("did not succeed when it last ran, or was forgotten")
    return reasons


def _wait_reasons(unsettled: Mapping[str, str]) -> Iterator[str]:
    """Yield a reason per step that writes inputs of the waiting one."""
    by_writer: dict[str, list[str]] = {}
    for path, writer in sorted(unsettled.items()):
        by_writer.setdefault(writer, []).append(path)
    for count, (writer, paths) in enumerate(by_writer.items()):
        if count == _MOST_WRITERS:
            yield f"or {len(by_writer) - _MOST_WRITERS} more steps like it"
            return
        more = f" or {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"after {writer}, if {paths[0]}{more} changes"
