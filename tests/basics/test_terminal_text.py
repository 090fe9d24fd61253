"""Lines that wrap at words, and commands that can be pasted."""

from __future__ import annotations

import subprocess

import pytest

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
