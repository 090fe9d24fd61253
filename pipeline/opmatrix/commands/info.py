"""`doit info STEP`: print the files that a step reads and writes, and why it runs. doit's `info` command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from doit.cmd_info import Info as DoitInfo
from doit.control import TaskControl
from doit.exceptions import InvalidCommand

from opmatrix.commands.base import CommandBase, end_with_pipe
from opmatrix.commands.task_selection import require_steps
from opmatrix.engine.forecast import forecast


class Info(CommandBase, DoitInfo):
    """Print an error for an unknown step, where doit 0.37 raises KeyError."""

    name = "info"
    doc_purpose = "files that a step reads and writes, and whether it would run"
    doc_usage = "STEP"

    def _execute(self, pos_args: Sequence[str], hide_status: bool = False) -> Any:
        end_with_pipe()
        if len(pos_args) != 1:
            raise InvalidCommand(f"takes one step, and was given {len(pos_args)}; see `doit list --all`")
        require_steps(pos_args, self.task_list)
        found = forecast(TaskControl(self.task_list).tasks, pos_args, self.dep_manager).get(pos_args[0])
        self._reasons = found.reasons if found else ()  # of a group: none
        return super()._execute(pos_args, hide_status)

    def get_reasons(self, reasons: object) -> str:
        """Return the reasons that `doit why` prints, not those of doit's checker."""
        return "\n".join(f" * {reason}" for reason in self._reasons)
