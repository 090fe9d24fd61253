"""Run a function in a forked child: torch is imported once, and the child's registrations end with it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from opmatrix.errors import OpmatrixError


def forked(function: Callable[[], None], output: Path) -> str:
    """Return the message of the OpmatrixError that `function` raises in a child, or "".

    `output` gets all that the child prints. Any other exception is raised here, with the child's traceback.
    """
    message = output.with_name(output.name + ".error")
    if not (child := os.fork()):
        os._exit(_run(function, output, message))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, 1):
        raise RuntimeError(f"the child ended with {status}:\n{output.read_text()}")
    return message.read_text() if status else ""


def _run(function: Callable[[], None], output: Path, message: Path) -> int:
    try:
        with output.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)  # pytest's own output goes elsewhere
        function()
    except OpmatrixError as error:
        message.write_text(str(error))
        return 1
    except BaseException:
        output.write_text(output.read_text() + traceback.format_exc())
        return 2
    return 0
