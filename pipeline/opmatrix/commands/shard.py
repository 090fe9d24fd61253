"""`doit --shard 2/5`: one part of what a command line selects, and a report of that part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Task

from opmatrix.basics.files import write_text
from opmatrix.engine.tasks import DIST, LINK, REPORT, StepTask
from opmatrix.plan.shards import Shard, divide, targets
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step


def select_part(control: TaskControl, asked: str, paths: Paths) -> TaskControl:
    """Return a TaskControl with the part `asked`, such as 2/5, of what `control` selects, and with the tasks that it
    needs. The report is about that part. Raises UsageError for what is no part, InvalidCommand for a wheel."""
    shard = Shard.parse(asked)
    names = [[name] if isinstance(control.tasks[name], StepTask) else control.tasks[name].task_dep
             for name in control.selected_tasks]  # fmt: skip
    chosen = {name: control.tasks[name].step for of_one in names for name in of_one}
    if wheel := next((name for name, step in chosen.items() if step.group in (DIST, LINK)), None):
        raise InvalidCommand(f"--shard {shard}: {wheel!r} needs every cell of the plan, so run it without --shard")
    report = chosen.pop(REPORT, None)
    needs = {name: control.tasks[name].task_dep for name in chosen}
    own = divide(targets(chosen, needs), of=shard.of, needs=needs)[shard.number - 1]
    kept, waiting = set[str](), [step.task for step in own]
    while waiting:
        if (name := waiting.pop()) not in kept:
            kept.add(name)
            waiting += control.tasks[name].task_dep
    tasks = [task for name, task in control.tasks.items() if name in kept]
    selected = _rotated([step.task for step in own], {step.task: step.operator for step in own}, shard)
    if report:
        tasks.append(StepTask(_report_of_part(report, own, control.tasks.values(), shard, paths)))
        selected.append(REPORT)
    made = TaskControl(tasks)
    made.selected_tasks = selected  # without `process`, which would parse options of tasks a second time
    return made


def _rotated(tasks: Iterable[str], operators: Mapping[str, str], shard: Shard) -> list[str]:
    """Return tasks by operator, each shard with another one first: shards that begin together then build the libraries
    of different operators, and find those of the others in the shared cache."""
    names = sorted({*operators.values()})
    first = len(names) * (shard.number - 1) // shard.of
    turn = {name: (place - first) % len(names) for place, name in enumerate(names)}
    return sorted(tasks, key=lambda task: turn[operators[task]])


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
