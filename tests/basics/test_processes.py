"""A limit of CPU time ends what takes longer, also where the first signal comes while no exception gets through."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import pytest

from opmatrix.basics.interrupts import TooSlow, cpu_limit
from opmatrix.basics.processes import children


def test_child_processes_of_every_thread_are_found() -> None:
    """The memory of a step includes theirs."""
    started, end = threading.Event(), threading.Event()
    processes: list[subprocess.Popen[bytes]] = []

    def work() -> None:
        processes.append(subprocess.Popen(["sleep", "60"]))
        started.set()
        end.wait()  # the child processes of a thread that ends belong to another one

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert started.wait()
        assert processes[0].pid in children(os.getpid())
    finally:
        for process in processes:
            process.kill()
            process.wait()
        end.set()
        thread.join()


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
