"""What a run is expected to do, and how long that takes: for those who watch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean

from doit.control import TaskControl

from pipeline.runner.forecast import forecast
from pipeline.runner.state import State


@dataclass(frozen=True)
class Expected:
    """The seconds of each step that runs, as far as is known when it begins, on so many cores; and the reasons."""

    seconds: Mapping[str, float]
    reasons: Mapping[str, str]
    cores: int

    def left(self, done: set[str]) -> float:
        """Return the seconds until the end: at most, for a step that waits for another may turn out up to date."""
        return sum(seconds for step, seconds in self.seconds.items() if step not in done) / self.cores


def expected(control: TaskControl, state: State, *, cores: int) -> Expected:
    """Return what is expected: what each step took when it last ran, else the mean of its group, else nothing."""
    found = forecast(control.tasks, control.selected_tasks, state)
    known = state.journal.durations()
    groups: dict[str, list[float]] = {}
    for step, took in known.items():
        groups.setdefault(step.partition(":")[0], []).append(took)
    means = {group: mean(all_of_it) for group, all_of_it in groups.items()}
    seconds = {
        step: known.get(step, means.get(step.partition(":")[0], 0.0))
        for step, one in found.items()
        if one.fate in ("run", "wait")
    }
    return Expected(seconds, {step: "; ".join(one.reasons) for step, one in found.items() if one.reasons}, cores)
