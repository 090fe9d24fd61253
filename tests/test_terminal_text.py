"""Lines that wrap at words, and commands that can be pasted."""

from __future__ import annotations

import pytest

from opmatrix.terminal_text import in_any_cell, wrapped

COMMAND = "python -m opmatrix verify group_norm --lowering custom --cell torch2.13-legacy-opset9-ort1.31 --case seed"


def test_a_long_line_breaks_between_words_and_keeps_its_indentation() -> None:
    lines = wrapped("  " + "four " * 30, 40).split("\n")
    assert all(len(line) <= 40 and line.startswith("  four") for line in lines)
    assert " ".join(lines).split() == ["four"] * 30


@pytest.mark.parametrize("prefix", ["  Replay: ", "  is wrong. Replay: ", "  Keep it with: ", "./run "])
def test_a_command_stays_whole(prefix: str) -> None:
    lines = wrapped(f"{'word ' * 20}{prefix}{COMMAND}", 80).split("\n")
    assert lines[-1].endswith(COMMAND)


def test_backticks_stay_whole() -> None:
    lines = wrapped("run it with `doit new --schema 'a b c'` and go on", 20).split("\n")
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
