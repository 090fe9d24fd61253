"""`doit forget [TASK ...]`: steps run again. doit's `forget` command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from doit.cmd_forget import Forget as DoitForget

from opmatrix.commands.base import CommandBase
from opmatrix.engine.lock import hold
from opmatrix.project.paths import Paths


class Forget(CommandBase, DoitForget):
    """Without a task: all of them, where doit 0.37 raises TypeError."""

    name = "forget"
    doc_purpose = "make steps run again, also where nothing has changed"
    doc_description = "Without a task, all are forgotten."

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        params["forget_all"] = params["forget_all"] or not args
        with hold(Paths(Path.cwd()).lock):
            return int(super().execute(params, args) or 0)
