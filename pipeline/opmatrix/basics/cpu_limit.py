"""Stop a function in Python that takes too much CPU time or memory."""

from __future__ import annotations

import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

AGAIN = 0.05  # seconds of CPU time


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

    def unraisable(found: sys.UnraisableHookArgs) -> None:
        if found.exc_type is not TooSlow:
            shown(found)

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
