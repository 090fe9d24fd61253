"""How far long work is: a line that is rewritten in a terminal, a line now and then elsewhere, marks in a step's log.

Imports only the standard library: `opmatrix.environments.bootstrap` uses it before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Lock, Thread
from typing import IO

from opmatrix.basics.step_log import LOGGED, now_doing

EVERY = 10.0  # seconds between two lines where the output is no terminal
_IN_TERMINAL, _IN_LOG = 0.2, 1.0  # seconds between two of those


class Progress:
    """Shows what one piece of work does and how far it is, after `quiet` seconds. A call that shows nothing takes less
    than a microsecond.

    In a step of doit it writes marks into the log, which doit's reporter shows; else it prints to stderr.
    """

    def __init__(
        self, *, quiet: float = 1.0, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream or sys.stderr, clock
        self._logged = LOGGED in os.environ
        self._live = not self._logged and self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = clock()
        self._next = self._began + (quiet if self._logged or self._live else EVERY)
        self._shown = False

    def show(self, what: str, done: float = 0, total: float = 0) -> None:
        """Show ``what``, such as ``12 of 60 mutants``, with the time that is left if `done` of `total` are given."""
        now = self._clock()
        if now < self._next:
            return
        left = time_left(now - self._began, done, total)
        if self._logged:
            self._next = now + _IN_LOG
            now_doing(what + left)
        elif self._live:
            self._next = now + _IN_TERMINAL
            self._rewrite(f"  {spent(now - self._began)}  {what}{left}")
        else:
            self._next = now + EVERY
            print(f"  {spent(now - self._began)}: {what}{left}", file=self._stream, flush=True)

    def clear(self) -> None:
        """Remove the line from the terminal, before another one is printed."""
        if self._shown:
            self._shown = False
            print("\r\x1b[K", end="", file=self._stream, flush=True)

    def _rewrite(self, line: str) -> None:
        self._shown = True
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{line[:width]}", end="", file=self._stream, flush=True)


@contextmanager
def shown_by_thread(what: Callable[[], str], *, quiet: float) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Show in the block what work in this thread does, where it has no place for calls of `show`. Yields what removes
    the line while something else is printed."""
    progress, ended, printing = Progress(quiet=quiet), Event(), Lock()

    def show() -> None:
        while not ended.wait(_IN_TERMINAL):
            with printing:
                progress.show(what())

    @contextmanager
    def pausing() -> Iterator[None]:
        with printing:
            progress.clear()
            yield

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield pausing
    finally:
        ended.set()
        thread.join()
        progress.clear()


def time_left(seconds: float, done: float, total: float) -> str:
    """Return ``, about 1:20 left``, if `done` of `total` took `seconds`, or "" if that says nothing."""
    return f", about {spent(seconds * (total - done) / done)} left" if 0 < done < total else ""


def spent(seconds: float) -> str:
    """Return ``0:07`` or ``12:30``: minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
