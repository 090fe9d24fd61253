"""docs/gates.md names tests that exist, and messages that are in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|\n").split(" | ")]
    for line in (ROOT / "docs/gates.md").read_text().splitlines()
    if line.startswith("|") and "::" in line
]


def problem(row: list[str]) -> str:
    """Return the fault of a row of the page, or ""."""
    if len(row) != 4:
        return f"{len(row)} columns, allowed: 4"
    _, _, message, test = row
    file, _, name = test.partition("::")
    function, _, case = name.rstrip("]").partition("[")
    path = ROOT / "tests" / file
    text = path.read_text() if path.is_file() else ""
    if f"def {function}(" not in text:
        return f"no test {function} in tests/{file}"
    if case and not re.search(rf"\b{re.escape(case)}\b", text):
        return f"no case {case!r} in tests/{file}"
    return "" if message == "-" or message in text else f"no message {message!r} in tests/{file}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_true(row: list[str]) -> None:
    assert problem(row) == ""


def test_the_page_is_complete() -> None:
    """The fifteen most common failures have a row each."""
    assert {int(row[0].split()[0]) for row in ROWS if row[0][0].isdigit()} == set(range(1, 16))


def test_a_row_with_a_fault_is_found() -> None:
    good = next(row for row in ROWS if "[" in row[3])
    assert "no test test_nothing in" in problem([*good[:3], "lowering/test_graph.py::test_nothing"])
    assert "no case 'nothing' in" in problem([*good[:3], good[3].split("[")[0] + "[nothing]"])
    assert "no message 'nothing of the kind' in" in problem([*good[:2], "nothing of the kind", good[3]])
