"""`doit ignore TASK ...`: leave steps out of every run until they are forgotten. doit's `ignore` command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from doit.cmd_ignore import Ignore as DoitIgnore
from doit.exceptions import InvalidCommand

from opmatrix.commands.base import CommandBase
from opmatrix.engine.lock import hold
from opmatrix.errors import did_you_mean
from opmatrix.project.paths import Paths


class Ignore(CommandBase, DoitIgnore):
    """doit 0.37 says that nothing was named and ends with 0, and writes the state while a run does."""

    name = "ignore"
    doc_purpose = "leave steps out of every run, until `doit forget` takes them back"
    doc_usage = "TASK ..."

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if not args:
            raise InvalidCommand("takes the steps to leave out, and was given none; see `doit list --all`")
        with hold(Paths(Path.cwd()).lock):
            return int(super().execute(params, args) or 0)

    def _execute(self, pos_args: Sequence[str]) -> None:
        known = {task.name for task in self.task_list}
        if unknown := next((name for name in pos_args if name not in known), None):
            raise InvalidCommand(f"no step {unknown!r}{did_you_mean(unknown, known)}; see `doit list --all`")
        super()._execute(pos_args)
