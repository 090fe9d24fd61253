"""End a command as Ctrl-C does, also where Python would drop the interrupt.

Imports only the standard library: `opmatrix.environments.bootstrap` uses it before anything is installed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

_SOON = 0.001  # seconds


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command as Ctrl-C does. A command under nohup, which ignores SIGHUP, outlives its
    terminal."""
    ignores = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM,) if ignores else (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block for `ending_signals` too, and once more where Python drops it. Only in the
    main thread, which alone gets signals.

    Python prints what a callback raises, such as one of a fork, of an import's weak reference, or `__del__`, and goes
    on (tried: 3.8 to 3.13): a command that was asked to end would run to its end.
    """

    def dropped(found: sys.UnraisableHookArgs) -> None:
        if found.exc_type is KeyboardInterrupt:
            signal.signal(signal.SIGALRM, again)
            signal.setitimer(signal.ITIMER_REAL, _SOON)  # not at once: the callback has not returned
        else:
            shown(found)

    def again(number: int, frame: FrameType | None) -> None:
        if _is_in(dropped.__code__, frame):  # what that raises is lost: on a busy machine it takes longer than _SOON
            signal.setitimer(signal.ITIMER_REAL, _SOON)
        else:
            signal.default_int_handler(number, frame)

    handlers = {number: signal.signal(number, signal.default_int_handler) for number in ending_signals()}
    shown, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = shown
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _is_in(code: CodeType, frame: FrameType | None) -> bool:
    """Return whether a function with this code runs in `frame` or has called what does."""
    while frame and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
