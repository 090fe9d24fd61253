"""Steps as doit's tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

from doit.task import Task

from opmatrix.step import Step

ENVIRONMENT = "environment"
# In the order in which data flows. The report runs whatever failed before it: it reports what there is.
GROUPS: Mapping[str, str] = {
    ENVIRONMENT: "make the environments of other versions of torch and ONNX Runtime",
    "headers": "find or fetch ONNX Runtime's headers",
    "codegen": "write the bindings that follow from each declaration",
    "compile": "build each operator's pair of libraries",
    "data": "write inputs and expected outputs of every case",
    "draw-inputs": "draw inputs that are hard on a kernel, and compute what is expected",
    "register": "prove each torch library: schema, values, gradients",
    "export": "export each operator through both exporters, at every opset",
    "verify": "run every model in ONNX Runtime against the expected outputs",
    "report": "show and write what is known about every cell",
    "probe": "measure which cells are legal, and compare with pipeline/opmatrix/matrix/cells.py, when asked for",
    "sanitize": "run each pair of libraries under AddressSanitizer and UBSan, when asked for",
    "link-wheel": "link the operators that ship into one pair of libraries, when asked for",
    "dist": "build a wheel of the operators that ship, when asked for",
}
REPORT = "report"
DIST = "dist"
# What `doit` runs where no task is named. An environment is made for the steps that run in it.
DEFAULT = tuple(group for group in GROUPS if group not in ("sanitize", "probe", "link-wheel", "dist", ENVIRONMENT))


class StepTask(Task):
    """A doit task that knows its step.

    Its action is the step's command, so that doit's own runner would do the same work as plain commands;
    `opmatrix.engine.step_runner` sends the step to a warm server instead.
    """

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
    """Yield a task per step, those of a group together, each group after a task that stands for all of it."""
    groups: dict[str, list[StepTask]] = {group: [] for group in GROUPS}
    for step in steps:
        groups[step.group].append(StepTask(step))
    for group, tasks in groups.items():
        if group == ENVIRONMENT and not tasks:  # most runs need none
            continue
        if not (tasks and tasks[0].name == group):
            yield Task(group, None, task_dep=[t.name for t in tasks], has_subtask=True, doc=GROUPS[group])
        yield from tasks
