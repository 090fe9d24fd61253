"""Stop a function in Python that takes too much CPU time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
