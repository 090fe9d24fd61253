"""Turn steps into doit's tasks. GROUPS are the task groups, such as `doit verify`.

Order steps by the longest path from each to the end of the run: with N cores, what waits longest runs first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

from doit.task import Task

from opmatrix.records.step import Step, read_name

ENVIRONMENT = "environment"
DECLARATION = "declaration"
# Groups without steps for each operator.
_OF_NO_OPERATOR = (DECLARATION, ENVIRONMENT, "probe")
# In the order of the data flow. The report also runs after failures and covers the verdicts that exist.
GROUPS: Mapping[str, str] = {
    DECLARATION: "the mistakes of operators that cannot be used",
    ENVIRONMENT: "make the environments of other versions of torch and ONNX Runtime",
    "codegen": "write the bindings that follow from each declaration",
    "compile": "build each operator's pair of libraries",
    "data": "write inputs and expected outputs of every case",
    "cases": "check that the cases detect wrong kernels, with the reference alone",
    "draw-inputs": "generate random inputs, and compute the expected outputs",
    "register": "check each torch library: schema, values, gradients",
    "export": "export each operator through both exporters, at every opset",
    "verify": "run every model in ONNX Runtime against the expected outputs",
    "report": "show and write what is known about every cell",
    "probe": "measure what exporters write and ONNX Runtime reads, when `doit probe` asks for it",
    "sanitize": "run all under AddressSanitizer, UBSan and ThreadSanitizer, when asked for",
    "compat": "run each operator beyond eager mode, such as in torch.compile, when asked for",
    "link-wheel": "link the operators that ship into one pair of libraries, when asked for",
    "dist": "build a wheel of verified operators, when asked for; --unverified, --format hf-kernel",
}
REPORT = "report"
DIST, LINK = "dist", "link-wheel"
# Groups that run only when they are asked for, by name or by a command of their own.
ON_DEMAND = ("probe", "sanitize", "compat", LINK, DIST)
# What plain `doit` runs. An environment is made when a step that runs in it is selected, and the steps of DECLARATION
# fail in each group that lacks steps of their operator.
DEFAULT = tuple(group for group in GROUPS if group not in (DECLARATION, ENVIRONMENT, *ON_DEMAND))


def is_reported(step: Step) -> bool:
    """Return whether the report covers the verdict of a step in any case."""
    return step.verdict is not None and step.group not in ON_DEMAND


def is_reported_on_demand(step: Step) -> bool:
    """Return whether the report covers the record of a step while that is up to date: checks on demand, and not what
    the sanitizers find."""
    return step.check is not None and step.group in ON_DEMAND


class StepTask(Task):
    """A doit task with its step. doit's own runner could run its action; `step_runner` sends the step to a server."""

    def __init__(self, step: Step) -> None:
        self.step = step
        super().__init__(
            step.task,
            [[sys.executable, "-m", "opmatrix", *step.command, *step.asks]],
            file_dep=step.reads,
            targets=step.writes,
            task_dep=step.after,
            subtask_of=step.group if step.name else None,
            doc=None if step.name else GROUPS[step.group],
            meta={"config": step.config},
        )


def doit_tasks(steps: Iterable[Step]) -> Iterator[Task]:
    """Yield a task per step, sorted by group; before the steps of a group, a task that depends on all of them, and on
    the failure of each operator that has no step there because it cannot be used."""
    groups: dict[str, list[StepTask]] = {group: [] for group in GROUPS}
    for step in steps:
        groups[step.group].append(StepTask(step))
    for group, tasks in groups.items():
        if group in (DECLARATION, ENVIRONMENT) and not tasks:  # most runs have none
            continue
        if not (tasks and tasks[0].name == group):
            failed = [] if group in _OF_NO_OPERATOR else groups[DECLARATION]
            yield Task(group, None, task_dep=[t.name for t in (*failed, *tasks)], has_subtask=True, doc=GROUPS[group])
        yield from tasks


def with_dependencies(tasks: Mapping[str, Task], names: Iterable[str]) -> list[str]:
    """Return the names of tasks and of all that they depend on."""
    found: dict[str, None] = {}
    waiting = [*names]
    while waiting:
        if (name := waiting.pop()) not in found:
            found[name] = None
            waiting += tasks[name].task_dep
    return [*found]


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
        groups.setdefault(read_name(step).group, []).append(took)
    means = {group: sum(took) / len(took) for group, took in groups.items()}

    def seconds(step: str) -> float:
        if (last := durations.get(step)) is not None:
            return last
        group = read_name(step).group
        return means.get(group, usual.get(group, least))

    return seconds


def ranks(tasks: Mapping[str, Task], durations: Mapping[str, float]) -> dict[str, int]:
    """Return the place of each task in the order in which to run what is ready: the longest path first, and of equal
    ones the first of `tasks`. `tasks`: of a TaskControl, whose `task_dep` also has the writers of a step's inputs.

    The first step of each server is longer by the server's start, so that what comes before it is early.
    """
    from graphlib import TopologicalSorter  # imported here: a run with nothing to do does without

    seconds = estimated(durations, usual=_USUAL, least=_LEAST)
    first: dict[str | None, Step] = {}
    for task in tasks.values():
        if isinstance(task, StepTask):
            first.setdefault(task.step.server_name, task.step)
    starts = {step.task: _STARTS[step.server] for step in first.values() if step.server}
    users: dict[str, list[str]] = {name: [] for name in tasks}
    for name, task in tasks.items():
        for dependency in task.task_dep:
            users[dependency].append(name)
    lengths: dict[str, float] = {}
    for name in TopologicalSorter(users).static_order():
        own = 0.0 if tasks[name].has_subtask else seconds(name) + starts.get(name, 0.0)
        lengths[name] = own + max((lengths[user] for user in users[name]), default=0.0)
    return {name: rank for rank, name in enumerate(sorted(tasks, key=lambda name: -lengths[name]))}
