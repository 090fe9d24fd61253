"""A command that is asked to end ends, also where Python drops the interrupt."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator

import pytest

from opmatrix.basics import interrupts
from opmatrix.basics.interrupts import code_of, interruptible

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
def test_a_signal_is_an_interrupt(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, interruptible():
        signal.raise_signal(number)
    assert code_of(caught.value) == 128 + number, "as a shell has it"


def test_a_command_under_nohup_outlives_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible():
        signal.raise_signal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", NUMBERS)
def test_an_interrupt_that_python_drops_comes_again(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, interruptible():
        Dropping(number)
        time.sleep(LONG)
    assert code_of(caught.value) == 128 + number
    assert capfd.readouterr().err == ""


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
