"""What the child of a server calls for a gate of a mutant: another function, in a shadow, with a limit of CPU time."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path

from opmatrix.declaration.load import load_operator
from opmatrix.engine.step_process import find_entry
from opmatrix.errors import OpmatrixError, print_error
from opmatrix.project.paths import Paths

STAGE = "opmatrix.cli:main"


def main(arguments: Sequence[str]) -> int:
    """Call a function. Arguments: the shadow's root, CPU seconds, the function's name, its own arguments.

    A process that exceeds its CPU seconds dies of SIGXCPU. The limit is of each process, so it also holds for those
    that the gate starts.
    """
    root, seconds, name, *words = arguments
    os.chdir(root)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    return find_entry(name)(words)


def races(arguments: Sequence[str]) -> int:
    """Run the stage `races` on a mutant. Arguments: the operator, and the stamp of all but its kernel."""
    from opmatrix.stages import races as stage  # here, because it imports NumPy, which few children need

    name, stamp = arguments
    paths = Paths(Path.cwd())
    try:
        stage.run(paths, load_operator(paths, name, checked=True), stamp=stamp)
    except OpmatrixError as error:
        print_error(error)
        return error.exit_code
    return 0
