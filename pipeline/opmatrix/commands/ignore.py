"""`doit ignore TASK ...`: leave steps out of every run until they are forgotten. doit's `ignore` command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from doit.cmd_ignore import Ignore as DoitIgnore
from doit.exceptions import InvalidCommand

from opmatrix.commands.base import LockedCommand
from opmatrix.commands.task_selection import require_steps


class Ignore(LockedCommand, DoitIgnore):
    """Fail without a task, where doit 0.37 exits with 0, and take the lock, which doit does not."""

    name = "ignore"
    doc_purpose = "leave steps out of every run, until `doit forget` takes them back"
    doc_usage = "TASK ..."

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        if not args:
            raise InvalidCommand("takes the steps to leave out, and was given none; see `doit list --all`")
        return super().execute(params, args)

    def _execute(self, pos_args: Sequence[str]) -> None:
        require_steps(pos_args, self.task_list)
        super()._execute(pos_args)
