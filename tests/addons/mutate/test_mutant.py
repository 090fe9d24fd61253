"""A mutant's text, key and diff."""

from __future__ import annotations

import dataclasses

import pytest

from opmatrix.addons.mutate.mutant import Mutant, StaleMutantError, numbered

SOURCE = "// größer\ndouble f(double x) {\n  return x < 0 ? 0 : x;\n}\n"
START = len(SOURCE[: SOURCE.index("<")].encode())
MUTANT = Mutant(
    path="native/f/kernel.h",
    kind="comparison",
    function="f",
    line=3,
    start=START,
    end=START + 1,
    before="<",
    after="<=",
    context="return x «<» 0 ? 0 : x;",
)


def test_offsets_are_those_of_bytes() -> None:
    assert MUTANT.applied(SOURCE) == SOURCE.replace("<", "<=")


def test_the_diff_has_file_line_and_key() -> None:
    lines = MUTANT.diff(SOURCE).splitlines()
    assert lines[:3] == [
        "--- native/f/kernel.h:3",
        f"+++ native/f/kernel.h:3 (comparison, mutant {MUTANT.key})",
        "@@ -1,4 +1,4 @@",
    ]
    assert [line for line in lines[3:] if line[0] in "+-"] == [
        "-  return x < 0 ? 0 : x;",
        "+  return x <= 0 ? 0 : x;",
    ]


def test_a_kernel_in_a_declaration_has_the_lines_of_the_file() -> None:
    diff = dataclasses.replace(MUTANT, line=103).diff(SOURCE)
    assert "@@ -101,4 +101,4 @@" in diff
    assert "-  return x < 0 ? 0 : x;" in diff


def test_a_mutant_of_another_text_is_refused() -> None:
    with pytest.raises(StaleMutantError) as error:
        MUTANT.applied(SOURCE.replace("<", ">"))
    assert str(error.value) == (
        f"native/f/kernel.h:3: mutant {MUTANT.key} (comparison) replaces '<', but '>' is there: "
        "the file has changed since. Run doit mutate again"
    )


def test_the_key_does_not_depend_on_the_place_in_the_file() -> None:
    assert dataclasses.replace(MUTANT, line=9, start=99, end=100).key == MUTANT.key


@pytest.mark.parametrize("field", ["path", "kind", "function", "before", "after", "context"])
def test_the_key_depends_on_what_is_changed(field: str) -> None:
    assert dataclasses.replace(MUTANT, **{field: "other"}).key != MUTANT.key


def test_equal_mutants_are_told_apart_by_their_order() -> None:
    later = dataclasses.replace(MUTANT, start=START + 50, end=START + 51, line=7)
    found = numbered([later, MUTANT, MUTANT])
    assert [(m.line, m.occurrence) for m in found] == [(3, 0), (7, 1)]
    assert found[0].key != found[1].key


def test_what_changes_nothing_is_no_mutant() -> None:
    assert numbered([dataclasses.replace(MUTANT, after="<")]) == []


def test_a_change_in_one_line() -> None:
    assert MUTANT.change == "return x «<» 0 ? 0 : x; -> <="
    assert dataclasses.replace(MUTANT, after="").change.endswith(" -> (nothing)")
