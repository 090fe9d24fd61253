"""`doit list`: its status is what `doit why` says. doit's `list` command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from doit.cmd_list import List as DoitList
from doit.cmd_list import opt_list_status
from doit.control import TaskControl
from doit.task import Task

from opmatrix.commands.base import CommandBase, quiet_pipe
from opmatrix.engine.forecast import Forecast, fate_of, forecast

_STATUS = opt_list_status | {
    "help": "print task status: (R)uns, (W)aits for a step before it and runs if what that writes changes, "
    "(U)p-to-date, (I)gnored, (E)rror: cannot run"
}


class List(CommandBase, DoitList):
    """doit's own looks at each task alone: one whose input is about to be written anew passes for up to date."""

    name = "list"
    doc_purpose = "the stages; --all for every step, --status for which would run"
    STATUS_MAP: ClassVar[Mapping[str, str]] = DoitList.STATUS_MAP | {"wait": "W"}
    cmd_options = tuple(_STATUS if option["name"] == "status" else option for option in DoitList.cmd_options)

    # doit gives what these parameters name.
    def _execute(
        self,
        subtasks: bool = False,
        quiet: bool = True,
        status: bool = False,
        private: bool = False,
        list_deps: bool = False,
        template: str | None = None,
        sort: str = "name",
        pos_args: Sequence[str] = (),
    ) -> int:
        quiet_pipe()
        self._found: Mapping[str, Forecast] = {}
        if status:
            control = TaskControl(self.task_list)
            self._found = forecast(control.tasks, control.tasks, self.dep_manager)
        return int(super()._execute(subtasks, quiet, status, private, list_deps, template, sort, pos_args))

    def _print_task(self, template: str, task: Task, status: bool, list_deps: bool, tasks: Mapping[str, Task]) -> None:
        letter = {"status": self.STATUS_MAP[fate_of(task, self._found)]} if status else {}
        self.outstream.write(template.format(name=task.name, doc=task.doc, **letter))
        if list_deps:
            self.outstream.write("".join(f" -  {path}\n" for path in sorted(task.file_dep)) + "\n")
