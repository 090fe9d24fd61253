"""Run a function in a forked child: torch is imported once, and the child's registrations end with it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from opmatrix.basics.errors import OpmatrixError
from opmatrix.commands import stages


def forked(function: Callable[[], None], output: Path) -> str:
    """Return the message of the OpmatrixError that `function` raises in a child, or "".

    `output` gets all that the child prints. Any other exception is raised here, with the child's traceback.
    """
    message = output.with_name(output.name + ".error")
    if not (child := _fork()):
        os._exit(_run(function, output, message))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, 1):
        raise RuntimeError(f"the child ended with {status}:\n{output.read_text()}")
    return message.read_text() if status else ""


def _fork() -> int:
    """Fork without OpenMP's threads: a child would wait forever for those of its parent, which a fork does not copy.

    omp_pause_resource_all (OpenMP 5.0) ends them; the next parallel region makes new ones.
    """
    hard = 2  # omp_pause_hard
    for library in {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line}:
        if ctypes.CDLL(library).omp_pause_resource_all(hard):
            raise RuntimeError(f"OpenMP's threads of {library} do not end")
    return os.fork()


def _run(function: Callable[[], None], output: Path, message: Path) -> int:
    try:
        with output.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        faulthandler.disable()  # pytest's writes the stack of a crash that a test plants into pytest's own output
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)  # pytest's own output goes elsewhere
        function()
    except OpmatrixError as error:
        message.write_text(str(error))
        return 1
    except BaseException:
        output.write_text(output.read_text() + traceback.format_exc())
        return 2
    return 0


def register(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m opmatrix register`` in a forked child, in the folder `root`. The imports of the stage, which are
    made here once, take 3 CPU s of an ordinary process."""
    for module in ("opmatrix.torch_checks.register", "opmatrix.torch_checks.opcheck", "opmatrix.torch_checks.register"):
        import_module(module)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if not (child := _fork()):
            status = 70
            try:
                os.chdir(root)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
                sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
                warnings.resetwarnings()  # pytest's filter makes errors of them
                status = stages.main(["register", *arguments])
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read().decode(), err.read().decode())
