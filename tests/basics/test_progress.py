"""What long work shows in a terminal, elsewhere and in a step's log; short work shows nothing."""

from __future__ import annotations

import io

import pytest

from opmatrix.basics.step_log import LOGGED, Progress, spent, time_left


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def count(progress: Progress, clock: Clock, seconds: int) -> None:
    """Show ten parts of `seconds` a second."""
    for tenth in range(seconds * 10):
        clock.now = 100 + tenth / 10
        progress.show(f"{tenth} of {seconds * 10} parts", tenth, seconds * 10)


def test_a_line_every_ten_seconds_elsewhere(clock: Clock) -> None:
    written = io.StringIO()
    count(Progress(stream=written, clock=clock), clock, 30)
    assert written.getvalue().splitlines() == [
        "  0:10: 100 of 300 parts, about 0:20 left",
        "  0:20: 200 of 300 parts, about 0:10 left",
    ]


def test_one_line_in_a_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    written = Terminal()
    progress = Progress(stream=written, clock=clock)
    count(progress, clock, 3)
    lines = written.getvalue().split("\r\x1b[K")
    assert lines[:2] == ["", "  0:01  10 of 30 parts, about 0:02 left"[:39]]
    assert 9 <= len(lines) <= 12 and "\n" not in written.getvalue()
    progress.clear()
    progress.clear()
    assert written.getvalue().endswith(" left\r\x1b[K"), "once"


def test_no_line_is_rewritten_in_a_dumb_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    written = Terminal()
    count(Progress(stream=written, clock=clock), clock, 12)
    assert written.getvalue() == "  0:10: 100 of 120 parts, about 0:02 left\n"


def test_marks_in_the_log_of_a_step(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(LOGGED, "1")
    count(Progress(clock=clock), clock, 3)
    assert capsys.readouterr().out.splitlines() == [
        "# now 10 of 30 parts, about 0:02 left",
        "# now 20 of 30 parts, about 0:01 left",
    ]


@pytest.mark.parametrize("logged", ["1", ""])
def test_short_work_shows_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], logged: str
) -> None:
    monkeypatch.setenv(LOGGED, logged) if logged else monkeypatch.delenv(LOGGED, raising=False)
    count(Progress(clock=clock), clock, 1)
    assert capsys.readouterr() == ("", "")


def test_times() -> None:
    assert (spent(7.9), spent(750)) == ("0:07", "12:30")
    assert time_left(10, 1, 4) == ", about 0:30 left"
    assert time_left(10, 0, 4) == time_left(10, 4, 4) == ""
