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
    """And what is in backticks."""
    lines = wrapped("  " + "four " * 30, 40).split("\n")
    assert all(len(line) <= 40 and line.startswith("  four") for line in lines)
    assert " ".join(lines).split() == ["four"] * 30
    lines = wrapped("run it with `doit new --schema 'a b c'` and go on", 30).split("\n")
    assert "`doit new --schema 'a b c'`" in lines


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


@pytest.mark.parametrize(
    "line",
    [
        "   64 |   for (; i < count; ++i) { a long line of the source of a kernel that a compiler shows }",
        "      |                                                     ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~",
        "  $ ninja --quiet -j 1 -C /a/folder/with/a/long/name/build/compile/group_norm and more of it here",
        " group_norm-custom   legacy     9 12 15 17 18 20                              6.9e+00 >999%  x y",
        " " + "─" * 90,
        "  Replay: python -m opmatrix verify a",
        "\x1b[31;1m" + "x" * 80 + "\x1b[0m",  # colours have no width
    ],
)
def test_what_has_columns_or_is_short_is_left_as_it_is(line: str) -> None:
    assert wrapped(line, 80) == line


def test_a_log_is_one_line_and_a_pipe_has_no_limit() -> None:
    log = wrapped(f"  Log: {'a/' * 60}log", 80)
    assert log.endswith("a/log") and "\\" not in log
    assert wrapped("word " * 100, 0) == "word " * 100


def test_what_differs_between_cells() -> None:
    one = in_any_cell("a@torch2.13-legacy-opset9-ort1.31: 3 of 4 differ, expected 1.5e-07 at opset 9")
    assert one == in_any_cell("a@torch2.9-dynamo-opset18-ort1.16: 2 of 8 differ, expected 0.1 at opset 18")
    assert one != in_any_cell("b@torch2.13-legacy-opset9-ort1.31: 3 of 4 differ, expected 1.5e-07 at opset 9")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def counted(seconds: int, stream: io.StringIO | None = None) -> Progress:
    """Show ten parts of `seconds` a second."""
    now = [100.0]
    progress = Progress(stream=stream, clock=lambda: now[0])
    for tenth in range(seconds * 10):
        now[0] = 100 + tenth / 10
        progress.show(f"{tenth} of {seconds * 10} parts", tenth, seconds * 10)
    return progress


def test_a_line_every_ten_seconds_outside_a_terminal_and_in_a_dumb_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counted(30, written := io.StringIO())
    assert written.getvalue().splitlines() == [
        "  0:10: 100 of 300 parts, about 0:20 left",
        "  0:20: 200 of 300 parts, about 0:10 left",
    ]
    monkeypatch.setenv("TERM", "dumb")
    counted(12, written := Terminal())
    assert written.getvalue() == "  0:10: 100 of 120 parts, about 0:02 left\n"


def test_one_line_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    progress = counted(3, written := Terminal())
    lines = written.getvalue().split("\r\x1b[K")
    assert lines[:2] == ["", "  0:01  10 of 30 parts, about 0:02 left"[:39]]
    assert 9 <= len(lines) <= 12 and "\n" not in written.getvalue()
    progress.clear()
    progress.clear()
    assert written.getvalue().endswith(" left\r\x1b[K"), "once"


def test_marks_in_the_log_of_a_step_and_nothing_of_short_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(LOGGED, raising=False)
    counted(1)
    monkeypatch.setenv(LOGGED, "1")
    counted(1)
    assert capsys.readouterr() == ("", "")
    counted(3)
    assert capsys.readouterr().out.splitlines() == [
        "# now 10 of 30 parts, about 0:02 left",
        "# now 20 of 30 parts, about 0:01 left",
    ]


def test_times() -> None:
    assert (spent(7.9), spent(750)) == ("0:07", "12:30")
    assert time_left(10, 1, 4) == ", about 0:30 left"
    assert time_left(10, 0, 4) == time_left(10, 4, 4) == ""
