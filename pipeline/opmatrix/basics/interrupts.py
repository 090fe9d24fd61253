"""End a command as Ctrl-C does, also where Python would drop the interrupt, and stop a function in Python that takes
too much CPU time or memory.

Imports only the standard library: `opmatrix.environments.bootstrap` uses it before anything is installed.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

_SOON = 0.001  # seconds
AGAIN = 0.05  # seconds of CPU time


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

    def dropped(raised: sys.UnraisableHookArgs) -> None:
        nonlocal number_of_dropped
        if issubclass(raised.exc_type, KeyboardInterrupt):
            number_of_dropped = getattr(raised.exc_value, "number", signal.SIGINT)
            signal.signal(signal.SIGALRM, again)
            signal.setitimer(signal.ITIMER_REAL, _SOON)  # not at once: the callback has not returned
        else:
            shown(raised)

    def again(_: int, frame: FrameType | None) -> None:
        caller = frame
        while caller and caller.f_code is not dropped.__code__:
            caller = caller.f_back
        if caller:  # what `dropped` raises is lost: on a busy machine it takes longer than _SOON
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


class _Now:
    """What is in force, for a function that computes in another process, and the CPU time that such ones took."""

    seconds: float | None = None
    megabytes: int | None = None
    elsewhere = 0.0


def in_force() -> tuple[float | None, int | None]:
    """Return the seconds of `cpu_limit` and the megabytes of `memory_limit` around the caller, or None."""
    return _Now.seconds, _Now.megabytes


def spend(seconds: float) -> None:
    """Add the CPU time that another process took for this one."""
    _Now.elsewhere += seconds


def cpu_time() -> float:
    """Return the CPU time of this process, and of those that computed for it."""
    return time.process_time() + _Now.elsewhere


class TooSlow(BaseException):
    """Raised in a block of `cpu_limit`; no Exception, so that no function which catches those keeps it."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlow in the block once it has taken `seconds` of CPU time: between two instructions of Python, so that
    one call of NumPy ends first. Without effect outside the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    def unraisable(raised: sys.UnraisableHookArgs) -> None:
        if raised.exc_type is not TooSlow:
            shown(raised)

    # A callback of a weak reference and __del__ swallow every exception, so the signal comes again.
    shown, sys.unraisablehook = sys.unraisablehook, unraisable
    outer, _Now.seconds = _Now.seconds, seconds
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        sys.unraisablehook = shown
        _Now.seconds = outer


@contextmanager
def memory_limit(megabytes: int) -> Iterator[None]:
    """Let an allocation in the block raise MemoryError once the process has so much more memory than before."""
    import resource  # imported here: every run of doit imports this module

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    wanted = used + (megabytes << 20)
    soft = wanted if before[0] == resource.RLIM_INFINITY else min(wanted, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (soft, before[1]))
    outer, _Now.megabytes = _Now.megabytes, megabytes
    try:
        yield
    finally:
        _Now.megabytes = outer
        resource.setrlimit(resource.RLIMIT_AS, before)
