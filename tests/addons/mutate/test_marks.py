"""Marks of equivalent mutants: read, written, and each mistake in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.addons.mutate.mutant import Mark, Mutant, as_toml, read_marks
from opmatrix.basics.errors import SpecError

MUTANTS = [
    Mutant(path="native/f/kernel.h", kind="comparison", function="f", line=n, start=n, end=n + 1, before="<",
           after="<=", context=f"return a «<» {n};")
    for n in range(40)
]  # fmt: skip
KEY = MUTANTS[0].key
MARK = as_toml(MUTANTS[0], "a NaN is never here")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mutants.toml"


def test_no_file_is_no_mark(file: Path) -> None:
    assert read_marks(file, MUTANTS) == {}


def test_a_printed_mark_with_a_reason_is_read(file: Path) -> None:
    file.write_text(f"# why\n{MARK}\n{as_toml(MUTANTS[1], 'as above')}")
    marks = read_marks(file, MUTANTS)
    assert marks[KEY] == Mark(mutant=KEY, change="return a «<» 0; -> <=", reason="a NaN is never here")
    assert list(marks) == [KEY, MUTANTS[1].key]


@pytest.mark.parametrize("text", ["it's", 'a "word"', "a\\b", "tab\t", "both ' and \""])
def test_any_text_is_quoted(file: Path, text: str) -> None:
    file.write_text(as_toml(MUTANTS[0], text))
    assert read_marks(file, MUTANTS)[KEY].reason == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[equivalent]", ": no TOML: Expected ']]' at the end of an array declaration"),
        (
            f"[[equivalents]]\nmutant = '{KEY}'",
            "unknown name 'equivalents', allowed: [[equivalent]]; did you ",
        ),
        ("equivalent = 3", "equivalent must be a list of tables; write [[equivalent]] above each"),
        ("equivalent = [3]", "equivalent must be a list of tables"),
        (as_toml(MUTANTS[0]), "mark 1: reason must be a string; doit mutate prints the mark, and you add the reason"),
        (
            MARK.replace("reason", "reson"),
            "mark 1: unknown field 'reson', allowed: mutant, change, reason; did ",
        ),
        (
            MARK.replace(KEY, "0" * 12),
            "mark 1: no mutant 000000000000 (return a «<» 0; -> <=): the code around it ",
        ),
        (MARK.replace("a «<» 0", "b"), f"mutant {KEY} is 'return a «<» 0; -> <=', not 'return b; -> <='. Write that"),
        (MARK + MARK, f"mutant '{KEY}' is marked 2 times"),
        ("".join(as_toml(m, "slow") for m in MUTANTS[:3]), "3 marks, allowed: 2, 5% of 40 mutants. Find inputs that"),
    ],
)
def test_a_mistake_is_one_sentence(file: Path, text: str, expected: str) -> None:
    file.write_text(text)
    with pytest.raises(SpecError) as error:
        read_marks(file, MUTANTS)
    assert expected in str(error.value)
    assert str(error.value).startswith(str(file))


def test_all_mistakes_are_reported_together(file: Path) -> None:
    file.write_text(f"[[equivalent]]\nmutant = '{KEY}'\nx = 1\n[other]\n")
    with pytest.raises(SpecError) as error:
        read_marks(file, MUTANTS)
    assert len(str(error.value).splitlines()) == 3
