"""`doit info STEP`: files that a step reads and writes, and why it runs, as `doit why` says it. doit's `info`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from doit.cmd_info import Info as DoitInfo
from doit.control import TaskControl
from doit.exceptions import InvalidCommand

from opmatrix.commands.base import CommandBase, quiet_pipe
from opmatrix.engine.forecast import forecast
from opmatrix.errors import did_you_mean


class Info(CommandBase, DoitInfo):
    """doit's own raises KeyError for a step that it does not know (0.37)."""

    name = "info"
    doc_purpose = "files that a step reads and writes, and whether it would run"
    doc_usage = "STEP"

    def _execute(self, pos_args: Sequence[str], hide_status: bool = False) -> Any:
        quiet_pipe()
        if len(pos_args) != 1:
            raise InvalidCommand(f"takes one step, and was given {len(pos_args)}; see `doit list --all`")
        known = {task.name for task in self.task_list}
        if pos_args[0] not in known:
            near = did_you_mean(pos_args[0], known)
            raise InvalidCommand(f"no step {pos_args[0]!r}{near}; see `doit list --all`")
        control = TaskControl(self.task_list)
        self._found = forecast(control.tasks, pos_args, self.dep_manager)
        self._name = pos_args[0]
        return super()._execute(pos_args, hide_status)

    def get_reasons(self, reasons: object) -> str:
        """Return why the step runs; what doit's own says is of its own checker."""
        return "\n".join(f" * {reason}" for reason in self._found[self._name].reasons)
