"""Find the smallest drawn case on which a kernel fails: with hypothesis, or of a large input by its sizes.

Call a function in a forked child process, so that a crash of a kernel ends only that.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.search.drawn import DrawnCase
from opmatrix.spec import Model


def smallest(
    paths: Paths,
    operator: Operator,
    first: DrawnCase,
    fails: Callable[[Model], bool],
    *,
    examples: int,
    seconds: float,
) -> Model | None:
    """Return the smallest model on which the kernel fails that is found within `seconds`, or None."""
    until = time.monotonic() + seconds
    failed: set[str] = set()

    def fails_in_time(model: Model) -> bool:
        if time.monotonic() < until and fails(model):
            failed.add(model.name)
        return model.name in failed

    if first.large:
        return _smaller(operator, first.model, fails_in_time)
    from opmatrix.search import draw_models

    return draw_models.find(operator, fails_in_time, examples=examples, home=paths.hypothesis)


def _smaller(operator: Operator, model: Model, fails: Callable[[Model], bool]) -> Model | None:
    """Return the model with each size made as small as it still fails, the largest first, or None if none is smaller.
    A fault above some size is found in as many steps as the size has bits."""
    from opmatrix.search import large  # here, because it imports hypothesis

    found: Model | None = None
    for old in large.sizes(operator, model):
        low, high, at = 1, old, found or model
        while low < high:
            middle = (low + high) // 2
            candidate = large.with_size(operator, at, old, middle)
            if candidate is not None and fails(candidate):
                found, high = candidate, middle
            else:
                low = middle + 1
    return found


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
