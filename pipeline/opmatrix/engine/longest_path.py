"""Order steps by the longest path from each to the end of the run: with N cores, what waits longest runs first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from doit.task import Task

from opmatrix.engine.doit_tasks import StepTask

# Seconds of a step whose group never ran here: of this project's operators, on one machine.
_USUAL = {
    "environment": 60.0,
    "compile": 1.0,
    "draw-inputs": 0.6,
    "register": 0.3,
    "export": 0.3,
    "report": 0.1,
    "sanitize": 10.0,
    "compat": 5.0,
    "dist": 5.0,
}
_LEAST = 0.05  # seconds of any other step
_STARTS = {"export": 2.5, "torch": 0.9, "ort": 0.25, "onnx": 0.2}  # seconds of servers


def estimated(durations: Mapping[str, float], *, usual: Mapping[str, float], least: float) -> Callable[[str], float]:
    """Return the function that estimates the seconds of a step: by its last duration, else by the mean of its group,
    else by what is `usual` for the group, else `least`."""
    groups: dict[str, list[float]] = {}
    for step, took in durations.items():
        groups.setdefault(step.partition(":")[0], []).append(took)
    means = {group: sum(took) / len(took) for group, took in groups.items()}

    def seconds(step: str) -> float:
        if (known := durations.get(step)) is not None:
            return known
        group = step.partition(":")[0]
        return means.get(group, usual.get(group, least))

    return seconds


def ranks(tasks: Mapping[str, Task], durations: Mapping[str, float]) -> dict[str, int]:
    """Return the place of each task in the order in which to run what is ready: the longest path first, and of equal
    ones the first of `tasks`. `tasks`: of a TaskControl, whose `task_dep` also has the writers of a step's inputs.

    The first step of each server is longer by the server's start, so that what comes before it is early.
    """
    seconds = estimated(durations, usual=_USUAL, least=_LEAST)
    first: dict[str | None, str] = {}
    for name, task in tasks.items():
        if isinstance(task, StepTask):
            first.setdefault(task.step.server_name, name)
    starts = {name: _STARTS.get(server.partition("@")[0], 0.0) for server, name in first.items() if server}
    users: dict[str, list[str]] = {name: [] for name in tasks}
    for name, task in tasks.items():
        for dependency in task.task_dep:
            users[dependency].append(name)
    lengths: dict[str, float] = {}
    left = [*tasks]
    while left:  # not recursive: a project may have long chains
        name = left[-1]
        if waiting := [user for user in users[name] if user not in lengths]:
            left += waiting
            continue
        left.pop()
        own = 0.0 if tasks[name].has_subtask else seconds(name) + starts.get(name, 0.0)
        lengths[name] = own + max((lengths[user] for user in users[name]), default=0.0)
    return {name: rank for rank, name in enumerate(sorted(tasks, key=lambda name: -lengths[name]))}
