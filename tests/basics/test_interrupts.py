"""A command that is asked to end ends, also where Python drops the interrupt. A limit of CPU time ends what takes
longer, also where the first signal comes while no exception gets through.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from opmatrix.basics import interrupts
from opmatrix.basics.interrupts import TooSlow, code_of, cpu_limit, interruptible
from opmatrix.basics.processes import children

LONG = 60.0  # seconds, in which an interrupt comes at once
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Handle these signals as Python does, which in the background of a shell or under nohup are ignored."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


class Dropping:
    """A signal arrives in its destructor, whose exceptions Python drops."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("is_dropped", [False, True], ids=["", "dropped by Python"])
def test_a_signal_is_an_interrupt(number: signal.Signals, is_dropped: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """One that Python drops comes again."""
    with pytest.raises(KeyboardInterrupt) as caught, interruptible():
        if is_dropped:
            Dropping(number)
            time.sleep(LONG)
        else:
            signal.raise_signal(number)
    assert code_of(caught.value) == 128 + number, "as a shell has it"
    assert capfd.readouterr().err == ""


def test_a_command_under_nohup_outlives_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible():
        signal.raise_signal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)


def test_one_that_comes_while_python_reports_the_first(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a busy machine. What `sys.unraisablehook` raises is lost."""
    timers = iter([lambda *_: signal.raise_signal(signal.SIGALRM), *[signal.setitimer] * 2])
    monkeypatch.setattr(signal, "setitimer", lambda *timer: next(timers)(*timer))
    with pytest.raises(KeyboardInterrupt), interruptible():
        Dropping(signal.SIGTERM)
        time.sleep(LONG)
    assert capfd.readouterr().err == ""


def test_one_that_is_dropped_twice_comes_a_third_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [Dropping(signal.SIGTERM), Dropping(signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt), interruptible():
        with monkeypatch.context() as patched:
            patched.setattr(interrupts, "_SOON", LONG)  # not before the second
            kept.pop()
        kept.pop()
        time.sleep(LONG)


def test_nothing_comes_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_SOON", 60.0)
    before = sys.unraisablehook, *map(signal.getsignal, NUMBERS)
    with interruptible():
        Dropping(signal.SIGTERM)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert (sys.unraisablehook, *map(signal.getsignal, NUMBERS)) == before


def test_other_errors_of_callbacks_are_shown() -> None:
    class Broken:
        def __del__(self) -> None:
            raise OSError("out of cheese")

    seen: list[object] = []
    shown, sys.unraisablehook = sys.unraisablehook, lambda found: seen.append(found.exc_value)
    try:
        with interruptible():
            Broken()
    finally:
        sys.unraisablehook = shown
    assert list(map(str, seen)) == ["out of cheese"]


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


@pytest.mark.parametrize("first", [list, Slow], ids=["a loop", "a destructor, then a loop"])
def test_a_loop_is_stopped(first: Callable[[], object]) -> None:
    began = time.process_time()
    with pytest.raises(TooSlow), cpu_limit(0.01):
        first()
        spin(1000)
    assert time.process_time() - began < 500


def test_what_is_fast_goes_through_and_the_timer_is_off() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with cpu_limit(10):
        spin(0.001)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGPROF) == before
