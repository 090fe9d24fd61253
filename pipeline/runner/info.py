"""`doit info STEP`: files that a step reads and writes, and why it would run. doit's `info` command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from doit.cmd_info import Info as DoitInfo
from doit.exceptions import InvalidCommand

from pipeline.errors import did_you_mean
from pipeline.runner.plain import Plain, quiet_pipe


class Info(Plain, DoitInfo):
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
        return super()._execute(pos_args, hide_status)
