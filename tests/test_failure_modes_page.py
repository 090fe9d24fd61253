"""docs/failure-modes.md names only gates of docs/gates.md, each with a message from the test's row there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGE, GATES = ((DOCS / name).read_text() for name in ("failure-modes.md", "gates.md"))
TEST = re.compile(r"`([\w/]+\.py::\w+(?:\[[^\]`]*\])?)`")
SYMPTOMS = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]


def rows_of(test: str) -> list[str]:
    """Return the rows of a test; a message that is a regular expression has backslashes, which readers do not need."""
    return [line.replace("\\.", ".") for line in GATES.splitlines() if line.startswith("|") and f"`{test}`" in line]


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda text: text.splitlines()[0][:50])
def test_a_symptom_has_its_cause_its_gate_and_its_remedy(symptom: str) -> None:
    for word in ("Cause", "Gate", "Remedy"):
        assert re.search(rf"^- {word}s?: ", symptom, re.MULTILINE), word
    tests = TEST.findall(symptom)
    assert tests
    for test in tests:
        assert rows_of(test), f"docs/gates.md has no row with the test {test}"


def test_a_message_of_a_gate_is_in_the_row_of_its_test() -> None:
    """The text in backticks before a test in brackets is the message of a row of that test."""
    said = re.findall(r"`([^`\n]+)`[^`(]{0,80}\(\s*`([\w/]+\.py::\w+(?:\[[^\]`]*\])?)`", PAGE)
    assert len(said) > 20
    for words, test in said:
        assert any(f"`{words}`" in row for row in rows_of(test)), f"{words!r} is no message of {test} in docs/gates.md"
