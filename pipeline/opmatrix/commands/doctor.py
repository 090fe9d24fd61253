"""`doit doctor`: what this machine and this project lack. A doit command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opmatrix.commands.base import CommandBase


class Doctor(CommandBase):
    """Load no tasks: dodo.py, a declaration or the toolchain may be what is broken."""

    name = "doctor"
    doc_purpose = "check the machine: compiler, headers, packages, environments, locks, disk"
    doc_description = (
        "Each line is one check; a problem has its remedy below it. Nothing is changed or fetched, and torch is not "
        "imported. Returns 0, or 1 if something that doit needs is missing. Where even doit is missing: python -m "
        "opmatrix.doctor."
    )

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        from opmatrix.doctor.examine import main  # only this command needs it

        return main(args)
