"""A limit of CPU time ends what takes longer, also where the first signal comes while no exception gets through."""

from __future__ import annotations

import signal
import time

import pytest

from opmatrix.basics.interrupts import TooSlow, cpu_limit


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


class Slow:
    """Its end takes time, and swallows every exception."""

    def __del__(self) -> None:
        spin(0.05)


def test_a_loop_is_stopped() -> None:
    with pytest.raises(TooSlow), cpu_limit(0.01):
        spin(10)


def test_a_signal_in_a_destructor_is_not_the_last() -> None:
    began = time.process_time()
    with pytest.raises(TooSlow), cpu_limit(0.01):
        Slow()
        spin(1000)
    assert time.process_time() - began < 500


def test_what_is_fast_goes_through_and_the_timer_is_off() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with cpu_limit(10):
        spin(0.001)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGPROF) == before
