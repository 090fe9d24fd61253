"""`doit tolerances OP`: the measured errors of an operator, and the tolerance that they call for. A doit command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from opmatrix.basics.errors import UsageError, printable
from opmatrix.commands.base import CommandBase
from opmatrix.engine.lock import hold


class Tolerances(CommandBase):
    """Run the stage of the same name in a child process, which may die of a kernel."""

    name = "tolerances"
    doc_purpose = "measured errors of an operator, its conditioning, and the tolerance that they call for"
    doc_usage = "OPERATOR"
    doc_description = (
        "Measures on what is built, so run `doit OPERATOR` first: the cases in torch and in ONNX Runtime, and how far "
        "the exact outputs move when the inputs move by one unit in the last place. Nothing is written."
    )

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if len(args) != 1:
            raise UsageError(f"doit tolerances takes one operator, and was given {len(args)}")
        with hold(self._paths.lock):
            command = [sys.executable, "-m", "opmatrix", "tolerances", args[0]]
            done = subprocess.run(command, cwd=self._paths.root, stdout=subprocess.PIPE, text=True, errors="replace")
        print(printable(done.stdout), end="")
        if done.returncode < 0:
            print(f"doit tolerances: the process died of signal {-done.returncode}", file=sys.stderr)
        return done.returncode if done.returncode >= 0 else 1
