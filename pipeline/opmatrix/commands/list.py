"""`doit list`: print the tasks, with the status that `doit why` computes. doit's `list` command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from doit.cmd_list import List as DoitList
from doit.cmd_list import opt_list_status
from doit.control import TaskControl
from doit.task import Task

from opmatrix.commands.base import CommandBase, end_with_pipe
from opmatrix.engine.forecast import Forecast, fate_of, forecast

_STATUS = opt_list_status | {
    "help": "print task status: (R)uns, (W)aits for a step before it and runs if what that writes changes, "
    "(U)p-to-date, (I)gnored, (E)rror: cannot run"
}


class List(CommandBase, DoitList):
    """Print a status that considers earlier steps.

    doit 0.37 considers each task alone: it calls a task up to date whose input an earlier step is about to write.
    """

    name = "list"
    doc_purpose = "the stages; --all for every step, --status for which would run"
    STATUS_MAP: ClassVar[Mapping[str, str]] = DoitList.STATUS_MAP | {"wait": "W"}
    cmd_options = tuple(_STATUS if option["name"] == "status" else option for option in DoitList.cmd_options)

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        end_with_pipe()
        return int(super().execute(params, args) or 0)

    @cached_property
    def _forecasts(self) -> Mapping[str, Forecast]:
        tasks = TaskControl(self.task_list).tasks
        return forecast(tasks, tasks, self.dep_manager)

    def _print_task(self, template: str, task: Task, status: bool, list_deps: bool, tasks: Mapping[str, Task]) -> None:
        letter = {"status": self.STATUS_MAP[fate_of(task, self._forecasts)]} if status else {}
        self.outstream.write(template.format(name=task.name, doc=task.doc, **letter))
        if list_deps:
            self.outstream.write("".join(f" -  {path}\n" for path in sorted(task.file_dep)) + "\n")
