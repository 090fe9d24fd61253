"""The process of one step, forked from a server. It inherits the imports and nothing else."""

from __future__ import annotations

import importlib
import os
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from opmatrix.errors import disk_fault
from opmatrix.processes import die_with_parent
from opmatrix.project.paths import Paths
from opmatrix.project.work_folder import WORK
from opmatrix.step_log import LOGGED

Entry = Callable[[Sequence[str]], int]

# A step writes this to its pipe after its entry returned 0. Exit code 0 is not enough: any code that a step runs, such
# as a kernel, may end the process with 0.
DONE = b"done"


def find_function(name: str) -> Any:
    """Return the function of a name ``package.module:function``."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def find_entry(name: str) -> Entry:
    """Return the function that steps call, by its name."""
    entry: Entry = find_function(name)
    return entry


def work_of(process: int) -> Path:
    """Return the working folder of the step that a process runs."""
    return Paths(Path.cwd()).work(str(process))


def run_step(entry: Entry, request: Mapping[str, Any], server: int, say_done: int) -> NoReturn:
    """Run one step in this process, which was forked for it, and exit. Write `DONE` to the descriptor `say_done` if
    `entry` returned 0: not if it raised SystemExit, and not in a process that the step itself forked."""
    process, code, returned = os.getpid(), 1, False
    try:
        _prepare_child(request["log"], server, say_done)
        os.environ.update(request["environment"] | {LOGGED: "1", WORK: str(work_of(process))})
        arguments: Sequence[str] = request["arguments"]
        print("$", shlex.join(["python", "-m", "opmatrix", *arguments]))
        code = entry(arguments)
        returned = True
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except BaseException as error:
        import traceback

        if said := disk_fault(error):
            print(said, file=sys.stderr)
        else:
            traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        if returned and code == 0 and os.getpid() == process:
            with suppress(OSError):
                os.write(say_done, DONE)
        os._exit(code)


def _prepare_child(log: str, server: int, say_done: int) -> None:
    import faulthandler

    die_with_parent()
    if os.getppid() != server:
        os._exit(127)
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (opened, 1), (opened, 2)):
        os.dup2(source, target)
    os.closerange(3, say_done)
    os.closerange(say_done + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    # Buffered by line, so that a crash loses no output.
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    faulthandler.enable(sys.stderr)
