"""End a command as Ctrl-C does, also where Python would drop the interrupt.

Imports only the standard library: `opmatrix.environments.bootstrap` uses it before anything is installed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import NoReturn

_SOON = 0.001  # seconds


class Interrupted(KeyboardInterrupt):
    """What a signal raises that ends a command as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def exit_code(number: int) -> int:
    """Return the exit code of a command that a signal ended, as a shell has it."""
    return 128 + number


def code_of(error: KeyboardInterrupt) -> int:
    """Return the exit code of a command that an interrupt ended: 130, 143 of SIGTERM, 129 of SIGHUP."""
    return exit_code(error.number if isinstance(error, Interrupted) else signal.SIGINT)


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command as Ctrl-C does. A command under nohup, which ignores SIGHUP, outlives its
    terminal."""
    ignores = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM,) if ignores else (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted in the block for `ending_signals`, and that or KeyboardInterrupt once more where Python drops
    it. Only in the main thread, which alone gets signals.

    Python prints what a callback raises, such as one of a fork, of an import's weak reference, or `__del__`, and goes
    on (tried: 3.8 to 3.13): a command that was asked to end would run to its end.
    """

    number_of_dropped = int(signal.SIGINT)

    def dropped(found: sys.UnraisableHookArgs) -> None:
        nonlocal number_of_dropped
        if issubclass(found.exc_type, KeyboardInterrupt):
            number_of_dropped = getattr(found.exc_value, "number", signal.SIGINT)
            signal.signal(signal.SIGALRM, again)
            signal.setitimer(signal.ITIMER_REAL, _SOON)  # not at once: the callback has not returned
        else:
            shown(found)

    def again(_: int, frame: FrameType | None) -> None:
        if _is_in(dropped.__code__, frame):  # what that raises is lost: on a busy machine it takes longer than _SOON
            signal.setitimer(signal.ITIMER_REAL, _SOON)
        else:
            _interrupt(number_of_dropped, frame)

    handlers = {number: signal.signal(number, _interrupt) for number in ending_signals()}
    shown, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = shown
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise Interrupted(number)


def _is_in(code: CodeType, frame: FrameType | None) -> bool:
    """Return whether a function with this code runs in `frame` or has called what does."""
    while frame and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
