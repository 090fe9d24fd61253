"""Commands of doit that do not work here: each raises an error with the reason and with what to type instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from doit.cmd_base import Command
from doit.exceptions import InvalidCommand

from opmatrix.commands.base import CommandBase


class RemovedCommand(CommandBase, Command):
    """Raise `reason`. doit 0.37 cannot remove its own commands, but a command of the same name replaces one."""

    reason = ""

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        raise InvalidCommand(self.reason)


class ResetDep(RemovedCommand):
    name = "reset-dep"
    doc_purpose = "not here: it would call results verified that nobody verified"
    reason = "would note results as made of inputs that they were never made of. `doit ignore STEP` leaves a step out"


class DumpDb(RemovedCommand):
    name = "dumpdb"
    doc_purpose = "not here: see why and info"
    reason = "the state is no dbm file. `doit why` says what is known of each step, `doit info STEP` of one"


class Strace(RemovedCommand):
    name = "strace"
    doc_purpose = "not here: steps run in servers"
    reason = (
        "steps run in servers, where strace would see nothing. A stage runs by itself, so: "
        "strace -f python -m opmatrix STAGE OPERATOR"
    )
