"""A mutant's text, key and diff, the marks of equivalent mutants, and samples of mutants."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.addons.mutate.mutant import Mark, Mutant, StaleMutantError, as_toml, numbered, read_marks
from opmatrix.addons.mutate.operator_mutants import sample
from opmatrix.basics.errors import SpecError

SOURCE = "// größer\ndouble f(double x) {\n  return x < 0 ? 0 : x;\n}\n"
START = len(SOURCE[: SOURCE.index("<")].encode())


def mutant(number: int, *, kind: str = "comparison", function: str = "f", context: str = "") -> Mutant:
    return Mutant(
        path="native/f/kernel.h", kind=kind, function=function, line=number, start=number, end=number + 1, before="<",
        after="<=", context=context or f"return a «<» {number};",
    )  # fmt: skip


MUTANT = replace(mutant(3, context="return x «<» 0 ? 0 : x;"), start=START, end=START + 1)


def test_the_text_and_the_diff_of_a_mutant() -> None:
    """Offsets are those of bytes. The mutant of a kernel in a declaration has the lines of the file."""
    assert MUTANT.applied(SOURCE) == SOURCE.replace("<", "<=")
    lines = MUTANT.diff(SOURCE).splitlines()
    change = ["-  return x < 0 ? 0 : x;", "+  return x <= 0 ? 0 : x;"]
    assert [line for line in lines if line[0] in "+-@"] == [
        "--- native/f/kernel.h:3",
        f"+++ native/f/kernel.h:3 (comparison, mutant {MUTANT.key})",
        "@@ -1,4 +1,4 @@",
        *change,
    ]
    declared = replace(MUTANT, line=103).diff(SOURCE)
    assert "@@ -101,4 +101,4 @@" in declared and change[0] in declared
    assert MUTANT.change == "return x «<» 0 ? 0 : x; -> <="
    assert replace(MUTANT, after="").change.endswith(" -> (nothing)")
    with pytest.raises(StaleMutantError) as error:
        MUTANT.applied(SOURCE.replace("<", ">"))
    assert str(error.value) == (
        f"native/f/kernel.h:3: mutant {MUTANT.key} (comparison) replaces '<', but '>' is there: "
        "the file has changed since. Run doit mutate again"
    )


def test_the_key_depends_on_what_is_changed_and_not_on_its_place() -> None:
    assert replace(MUTANT, line=9, start=99, end=100).key == MUTANT.key
    fields = "path", "kind", "function", "before", "after", "context"
    assert MUTANT.key not in {replace(MUTANT, **{field: "other"}).key for field in fields}
    later = replace(MUTANT, start=START + 50, end=START + 51, line=7)
    found = numbered([later, MUTANT, MUTANT, replace(MUTANT, after="<")])  # the last one changes nothing
    assert [(m.line, m.occurrence) for m in found] == [(3, 0), (7, 1)] and found[0].key != found[1].key


MUTANTS = [mutant(n) for n in range(40)]
KEY = MUTANTS[0].key
MARK = as_toml(MUTANTS[0], "a NaN is never here")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mutants.toml"


def test_a_printed_mark_with_a_reason_is_read(file: Path) -> None:
    assert read_marks(file, MUTANTS) == {}, "there is no file"
    file.write_text(f"# why\n{MARK}\n{as_toml(MUTANTS[1], 'as above')}")
    marks = read_marks(file, MUTANTS)
    assert marks[KEY] == Mark(mutant=KEY, change="return a «<» 0; -> <=", reason="a NaN is never here")
    assert list(marks) == [KEY, MUTANTS[1].key]
    for text in ("it's", 'a "word"', "a\\b", "tab\t", "both ' and \""):
        file.write_text(as_toml(MUTANTS[0], text))
        assert read_marks(file, MUTANTS)[KEY].reason == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[equivalent]", ": no TOML: Expected ']]' at the end of an array declaration"),
        (f"[[equivalents]]\nmutant = '{KEY}'",
         "unknown name 'equivalents', allowed: [[equivalent]]; did you "),
        ("equivalent = 3", "equivalent must be a list of tables; write [[equivalent]] above each"),
        ("equivalent = [3]", "equivalent must be a list of tables"),
        (as_toml(MUTANTS[0]), "mark 1: reason must be a string; doit mutate prints the mark, and you add the reason"),
        (MARK.replace("reason", "reson"), "mark 1: unknown field 'reson', allowed: mutant, change, reason; did "),
        (MARK.replace(KEY, "0" * 12),
         "mark 1: no mutant 000000000000 (return a «<» 0; -> <=): the code around it "),
        (MARK.replace("a «<» 0", "b"), f"mutant {KEY} is 'return a «<» 0; -> <=', not 'return b; -> <='. Write that"),
        (MARK + MARK, f"mutant '{KEY}' is marked 2 times"),
        ("".join(as_toml(m, "slow") for m in MUTANTS[:3]), "3 marks, allowed: 2, 5% of 40 mutants. Find inputs that"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(file: Path, text: str, expected: str) -> None:
    file.write_text(text)
    with pytest.raises(SpecError) as error:
        read_marks(file, MUTANTS)
    assert expected in str(error.value) and str(error.value).startswith(str(file))


def test_all_mistakes_are_reported_together(file: Path) -> None:
    file.write_text(f"[[equivalent]]\nmutant = '{KEY}'\nx = 1\n[other]\n")
    with pytest.raises(SpecError) as error:
        read_marks(file, MUTANTS)
    assert len(str(error.value).splitlines()) == 3


MANY = [
    *(mutant(n, kind="arithmetic", function=f"function_{n % 4}") for n in range(80)),
    *(mutant(n, kind="constant") for n in range(80, 100)),
    mutant(100, kind="state"),
]


def test_a_sample_has_each_kind_and_the_others_by_their_share() -> None:
    found = sample(MANY, count=21, seed="1")
    kinds = Counter(m.kind for m in found)
    assert len(found) == 21 and kinds["state"] == 1 and 14 <= kinds["arithmetic"] <= 17
    functions = Counter(m.function for m in found if m.kind == "arithmetic")
    assert len(functions) == 4 and max(functions.values()) - min(functions.values()) <= 2
    assert found == sample(MANY, count=21, seed="1") != sample(MANY, count=21, seed="2")
    assert len({m.kind for m in sample(MANY, count=2, seed="1")}) == 2, "fewer than the kinds are of different kinds"
    assert sample(MANY, count=101, seed="1") == sample(MANY, count=1000, seed="1") == MANY
    half = [m.line for m in sample(MANY, count=50, seed="1")]
    assert half == sorted({*half}) and len(half) == 50, "in the order of the file, and each once"


def test_an_edit_keeps_the_sample_of_other_functions() -> None:
    before = [m.key for m in sample(MANY, count=21, seed="1")]
    moved = [replace(m, line=m.line + 7, start=m.start + 70, end=m.end + 70) for m in MANY]
    assert [m.key for m in sample(moved, count=21, seed="1")] == before
    others = [m for m in MANY if m.function != "function_0"]
    after = {m.key for m in sample(others, count=21, seed="1")}
    assert len({*before} & {m.key for m in others} - after) <= 2
