"""`doit forget [TASK ...]`: make steps run again. doit's `forget` command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from doit.cmd_forget import Forget as DoitForget

from opmatrix.commands.base import LockedCommand


class Forget(LockedCommand, DoitForget):
    """Without a task, forget all; doit 0.37 raises TypeError then."""

    name = "forget"
    doc_purpose = "make steps run again, also where nothing has changed"
    doc_description = "Without a task, all are forgotten."

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        params["forget_all"] = params["forget_all"] or not args
        return super().execute(params, args)
