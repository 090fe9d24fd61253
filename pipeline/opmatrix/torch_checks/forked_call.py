"""Call a function in a forked child process, so that a crash of a kernel ends only that."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_ANSWER, _RAISED = b"\0answer\0", b"\0raised\0"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a child ended: the last line that it sent, its answer, or None if it ended before it returned one."""

    sent: str
    answer: bytes | None
    status: int

    @property
    def how(self) -> str:
        """How a child without an answer ended: ``died of SIGSEGV``."""
        if self.status < 0:
            return f"died of {signal.Signals(-self.status).name}"
        return f"ended the process with exit code {self.status}"


def can_fork() -> bool:
    """Return whether this process has one thread: those of OpenMP do not survive a fork, and the child would hang."""
    return len([*Path("/proc/self/task").iterdir()]) == 1


def call(function: Callable[[Callable[[str], None]], bytes], *, quiet: bool = False, seconds: int = 0) -> Ended:
    """Call `function` in a child; raises RuntimeError where it raises. Its argument is a function that tells the parent
    what runs next. `quiet` drops what the child prints, and after `seconds` the child ends with SIGALRM."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        _run(function, writing, quiet, seconds)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content, _, raised = pipe.read().partition(_RAISED)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if raised:
        raise RuntimeError(f"in a child process:\n{raised.decode()}")
    sent, found, answer = content.partition(_ANSWER)
    last = sent.decode().splitlines()
    return Ended(sent=last[-1] if last else "", answer=answer if found and status == 0 else None, status=status)


def _run(function: Callable[[Callable[[str], None]], bytes], writing: int, quiet: bool, seconds: int) -> None:
    status = 1
    try:
        faulthandler.disable()  # the parent says more than a stack of Python
        if quiet:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            sys.stdout = sys.stderr = os.fdopen(null, "w", closefd=False, encoding="utf-8")
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        answer = function(lambda text: _write(writing, f"{text}\n".encode()))
        _write(writing, _ANSWER + answer)
        status = 0
    except BaseException:
        _write(writing, _RAISED + traceback.format_exc().encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
