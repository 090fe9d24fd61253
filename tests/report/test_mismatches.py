"""The page has the errors of a few failing cases, equal ones once, and each operator's before another message's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict as verdicts
from opmatrix.records.verdict import CaseKind, CaseResult, CheckRecord, FailedStep, Verdict
from opmatrix.report import page as html_page
from opmatrix.report.page import MOST, Background, read_mismatches
from opmatrix.report.report_json import document
from tests.report.many import ENVIRONMENTS, cells, verdict

CELLS = [*cells()]


def failing(paths: Paths, op: str, cell: Cell, *, detail: str = "3 of 64 elements differ") -> Verdict:
    """Write the record of case_1, which is wrong, as verify does."""
    found = verdict(op, cell, "mismatched")
    found = replace(found, cases=(found.cases[0], replace(found.cases[1], detail=detail)))
    verdicts.write_mismatches(paths.mismatches(paths.verdict(*found.key)), [record(f"{found}: {detail}")])
    return found


def record(marker: str, case: str = "case_1") -> dict[str, object]:
    return {"case": case, "model": "static", "marker": marker}


def markers(paths: Paths, found: Sequence[Verdict], checks: Sequence[CheckRecord] = ()) -> list[object]:
    return [one["marker"] for one in read_mismatches(paths, found, checks)["records"]]


def test_nothing_fails(tmp_path: Path) -> None:
    assert read_mismatches(Paths(tmp_path), [verdict("op", CELLS[0])], []) == html_page.NO_MISMATCHES


def test_cells_with_the_same_message_share_the_record_of_the_first(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = [failing(paths, "op", cell) for cell in CELLS[:9]]
    page = read_mismatches(paths, found, [])
    assert [one["of"] for one in page["records"]] == [str(found[0])]
    assert page["shown"] == {str(one): {"case_1/static": 0} for one in found}
    assert page["failing"] == 9


def test_each_operator_comes_before_the_second_message_of_one(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = [failing(paths, "a", cell, detail=f"error {n}") for n, cell in enumerate(CELLS[: MOST + 5])]
    found += [failing(paths, name, CELLS[0]) for name in "bc"]
    shown = markers(paths, found)
    assert [str(one).partition("-")[0] for one in shown[:4]] == ["a", "b", "c", "a"]
    assert len(shown) == MOST and read_mismatches(paths, found, [])["failing"] == MOST + 7


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"mismatches": [{"case": "case_1"}]}', '{"mismatches": 3}'])
def test_a_case_without_a_readable_record_has_none(tmp_path: Path, damaged: str) -> None:
    paths = Paths(tmp_path)
    found = failing(paths, "op", CELLS[0])
    paths.mismatches(paths.verdict(*found.key)).write_text(damaged)
    assert markers(paths, [found]) == []


def test_the_record_of_an_earlier_run_is_removed(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = failing(paths, "op", CELLS[0])
    verdicts.write_mismatches(paths.mismatches(paths.verdict(*found.key)), [])
    assert not [*paths.build.rglob("*.mismatches.json")] and markers(paths, [found]) == []


KINDS: dict[CaseKind, str] = {"drawn": "drawn_inputs", "forbidden": "forbidden_inputs"}


def test_the_record_of_a_drawn_input(tmp_path: Path) -> None:
    """The search fails as one case. Other failed cases have no numbers, and none is looked for."""
    paths, found = Paths(tmp_path), verdict("op", CELLS[0], "failed")
    drawn, other = (
        CaseResult(case=name, model=name, outcome="failed", kind=kind, detail="differs") for kind, name in KINDS.items()
    )
    found = replace(found, cases=(*found.cases, drawn, other))
    one = {"case": "drawn_inputs", "model": "drawn_inputs", "drawn": "found_1", "marker": "it"}
    verdicts.write_mismatches(paths.mismatches(paths.verdict(*found.key)), [one])
    page = read_mismatches(paths, [found], [])
    assert [one["drawn"] for one in page["records"]] == ["found_1"] and page["failing"] == 1
    assert page["shown"] == {str(found): {"drawn_inputs/drawn_inputs": 0}}


@pytest.mark.parametrize("part", ["kernel", "search", "gradient"])
def test_the_records_of_a_check_in_torch(tmp_path: Path, part: str) -> None:
    paths = Paths(tmp_path)
    check = CheckRecord(op="op", check=part, torch="2.13", outcome="failed", detail="differs")
    path = paths.mismatches(paths.check_record(*check.key))
    verdicts.write_mismatches(path, [record("one", "a"), record("two", "b")])
    page = read_mismatches(paths, [], [check, replace(check, check="schema")])
    assert [one["marker"] for one in page["records"]] == ["one", "two"]
    assert page["shown"] == {str(check): {"a/static": 0, "b/static": 1}}


def test_a_check_that_did_not_run_has_no_record(tmp_path: Path) -> None:
    """The file is of an earlier run."""
    paths = Paths(tmp_path)
    blocked = FailedStep(group="compile", name="op")
    check = CheckRecord(op="op", check="kernel", torch="2.13", outcome="failed", detail="not run", blocked_by=blocked)
    verdicts.write_mismatches(paths.mismatches(paths.check_record(*check.key)), [record("one", "a")])
    assert read_mismatches(paths, [], [check]) == html_page.NO_MISMATCHES


def test_cells_of_an_operator_share_what_is_known_of_all_cases(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = [failing(paths, op, cell, detail=f"error {n}") for op in "ab" for n, cell in enumerate(CELLS[:3])]
    for number, one in enumerate(found):
        over = {"cases": ["case_1/static"], "sizes": {"W": [number]}} if number != 3 else None
        verdicts.write_mismatches(paths.mismatches(paths.verdict(*one.key)), [record(str(one))], over)
    page = read_mismatches(paths, found, [])
    assert [one["sizes"] for one in page["over"]] == [{"W": [0]}, {"W": [4]}]
    assert {one["of"][0]: one["over"] for one in page["records"] if one["of"] != str(found[3])} == {"a": 0, "b": 1}


def test_the_page_has_the_records(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = failing(paths, "op", CELLS[0])
    html = html_page.render(
        document([found], ENVIRONMENTS), [found], [Background()], (), read_mismatches(paths, [found], [])
    )
    data = html.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["mismatches"]["records"][0]["of"] == str(found)
