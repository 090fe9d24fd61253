"""Completions of a command line."""

from __future__ import annotations

import pytest

from opmatrix.commands.help import candidates

COMMANDS = ("run", "why", "check", "clean")
TASKS = (
    "compile",
    "compile:nms",
    "compile:gelu",
    "verify",
    "verify:nms-custom@torch2.13-legacy-opset9-ort1.31",
    "report",
)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("doit w", ["why"]),
        ("doit c", ["check", "clean", "compile", "compile:"]),
        ("doit compile:", ["compile:nms", "compile:gelu"]),
        ("doit clean compile:n", ["compile:nms"]),
        ("doit why r", ["report"]),  # there is no second command
        ("doit verify:nms-custom@torch2", ["verify:nms-custom@torch2.13-legacy-opset9-ort1.31"]),
        ("doit t", ["torch="]),
        ("doit ort=1.2", ["ort=1.21", "ort=1.24"]),
        ("doit torch=2.9,2.1", ["torch=2.9,2.13", "torch=2.9,2.15"]),
        ("doit color=", []),
        ("doit check comp", []),  # a file name, not a task name
        ("doit why --v", ["--verbosity"]),
    ],
)
def test_completions(line: str, found: list[str]) -> None:
    assert candidates(line.split(" "), COMMANDS, ["--verbosity", "--all"], TASKS) == found


def test_completions_of_an_empty_line() -> None:
    found = candidates(["doit", ""], COMMANDS, [], TASKS)
    assert found[:4] == list(COMMANDS)
    assert {"torch=", "compile", "compile:", "report"} <= {*found} and "report:" not in found
