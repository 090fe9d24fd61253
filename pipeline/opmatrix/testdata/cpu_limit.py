"""Stop a function in Python that takes too much CPU time or memory."""

from __future__ import annotations

import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

AGAIN = 0.05  # seconds of CPU time


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
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        sys.unraisablehook = shown


@contextmanager
def memory_limit(megabytes: int) -> Iterator[None]:
    """Let an allocation in the block raise MemoryError once the process has so much more memory than before."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    wanted = used + (megabytes << 20)
    soft = wanted if before[0] == resource.RLIM_INFINITY else min(wanted, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
