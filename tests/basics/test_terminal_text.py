"""Lines that wrap at words, and commands that can be pasted. What long work shows in a terminal, elsewhere and in a
step's log; short work shows nothing.
"""

from __future__ import annotations

import io
import subprocess

import pytest

from opmatrix.basics.step_log import LOGGED, Progress, spent, time_left
from opmatrix.basics.terminal import in_any_cell, wrapped

COMMAND = "python -m opmatrix verify group_norm --lowering custom --cell torch2.13-legacy-opset9-ort1.31 --case seed"


def test_a_long_line_breaks_between_words_and_keeps_its_indentation() -> None:
    lines = wrapped("  " + "four " * 30, 40).split("\n")
    assert all(len(line) <= 40 and line.startswith("  four") for line in lines)
    assert " ".join(lines).split() == ["four"] * 30


@pytest.mark.parametrize("prefix", ["  Replay: ", "  is wrong. Replay: ", "  Keep it with: ", "./run "])
def test_a_command_stays_one_for_the_shell(prefix: str) -> None:
    lines = wrapped(f"{'word ' * 20}{prefix.lstrip()}{COMMAND}", 80).split("\n")
    assert all(len(line) <= 80 for line in lines)
    assert lines[-2].endswith("--lowering custom \\") and lines[-1].startswith("    --cell torch2.13")
    whole = " ".join(" ".join(lines).replace("\\", "").split())
    assert whole.endswith(f"{prefix.strip()} {COMMAND}")


def test_quotes_and_values_of_options_are_not_divided() -> None:
    schema = "'my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor'"
    lines = wrapped(f"  Run: python -m opmatrix new --schema {schema} && gdb --args python", 60).split("\n")
    assert [line.strip() for line in lines] == [
        "Run: python -m opmatrix new \\",
        f"--schema {schema} \\",
        "&& gdb --args python",
    ]
    command = f"python -c 'import sys; print(sys.argv)' {'word ' * 20}--schema {schema}"
    script = wrapped(f"Run: {command}", 60).removeprefix("Run: ")
    given = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert given == f"{['-c', *['word'] * 20, '--schema', schema.strip(chr(39))]}\n"


def test_a_log_and_a_short_command_are_one_line() -> None:
    assert wrapped(f"  Log: {'a/' * 60}log", 80).endswith("a/log") and "\\" not in wrapped(f"  Log: {'a/' * 60}log", 80)
    assert wrapped("  Replay: python -m opmatrix verify a", 80) == "  Replay: python -m opmatrix verify a"


def test_backticks_stay_whole() -> None:
    lines = wrapped("run it with `doit new --schema 'a b c'` and go on", 30).split("\n")
    assert "`doit new --schema 'a b c'`" in lines


@pytest.mark.parametrize(
    "line",
    [
        "   64 |   for (; i < count; ++i) { a long line of the source of a kernel that a compiler shows }",
        "      |                                                     ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~",
        "  $ ninja --quiet -j 1 -C /a/folder/with/a/long/name/build/compile/group_norm and more of it here",
        " group_norm-custom   legacy     9 12 15 17 18 20                              6.9e+00 >999%  x y",
        " " + "─" * 90,
    ],
)
def test_what_has_columns_is_left_as_it_is(line: str) -> None:
    assert wrapped(line, 80) == line


def test_colours_have_no_width_and_a_pipe_no_limit() -> None:
    red = "\x1b[31;1m" + "x" * 40 + "\x1b[0m"
    assert wrapped(red, 40) == red
    assert wrapped("word " * 100, 0) == "word " * 100


def test_what_differs_between_cells() -> None:
    one = in_any_cell("a@torch2.13-legacy-opset9-ort1.31: 3 of 4 differ, expected 1.5e-07 at opset 9")
    assert one == in_any_cell("a@torch2.9-dynamo-opset18-ort1.16: 2 of 8 differ, expected 0.1 at opset 18")
    assert one != in_any_cell("b@torch2.13-legacy-opset9-ort1.31: 3 of 4 differ, expected 1.5e-07 at opset 9")


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
