"""The records of checks in the report: a check without a valid record has failed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import ReportError
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.step import CheckKey
from opmatrix.records.verdict import CheckRecord
from opmatrix.report import write_report
from opmatrix.report.markdown import compare
from opmatrix.report.read_cache import ReadCache
from opmatrix.report.records import checked, checks_in_order, collect_check
from opmatrix.report.report_json import document, is_wrong, text
from tests.report.many import ENVIRONMENTS, checks

KERNEL = CheckKey("op", "kernel", torch="2.13")
RIGHT = CheckRecord(op="op", check="kernel", torch="2.13", outcome="verified", results=({"case": "a", "error": 0.5},))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


def path_of(paths: Paths, key: CheckKey) -> Path:
    return paths.check_record(*key)


@pytest.mark.parametrize("found", checks(), ids=str)
def test_a_record_is_read_as_it_was_written(paths: Paths, found: CheckRecord) -> None:
    path = paths.build / "record.json"
    verdict.write(path, found)
    assert verdict.read_check(path) == verdict.read_any(path) == found
    with pytest.raises(ValueError, match="not a verdict, but the record of a check"):
        verdict.read(path)


def test_each_check_has_a_name_and_a_file_of_its_own(paths: Paths) -> None:
    keys = [
        KERNEL,
        CheckKey("op", "kernel", torch="2.9"),
        CheckKey("op", "agreement", "custom", "2.9+2.13"),
        CheckKey("op", "agreement", "decomposed", "2.9+2.13"),
        CheckKey("op", "cases"),
        CheckKey("op", "declaration"),
    ]
    assert len({path_of(paths, key) for key in keys}) == len({*map(str, keys)}) == len(keys)
    assert str(keys[2]) == "op-custom-agreement@torch2.9+2.13"
    assert path_of(paths, keys[-1]) == paths.declaration_record("op")


def test_the_cases_are_checked_again_by_their_own_stage() -> None:
    found = CheckRecord(op="op", check="cases", outcome="failed", detail="no case distinguishes input 'x' from zeros")
    assert found.replay == "python -m opmatrix cases op"


def test_a_check_without_a_record_has_failed(paths: Paths) -> None:
    found = collect_check(ReadCache(paths), KERNEL)
    assert (found.outcome, found.detail) == ("failed", "no record: nothing has run this check. Run: doit")


@pytest.mark.parametrize("damaged", ["", "{", "[]", "\x00", '{"check": "kernel"}'])
def test_a_damaged_record_has_failed(paths: Paths, damaged: str) -> None:
    path_of(paths, KERNEL).parent.mkdir(parents=True)
    path_of(paths, KERNEL).write_text(damaged)
    found = collect_check(ReadCache(paths), KERNEL)
    assert found.outcome == "failed" and found.detail.startswith("no record: ")


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (replace(RIGHT, results=()), "verified, but nothing was checked"),
        (replace(RIGHT, torch="2.9"), "the file contains another record, op-kernel@torch2.9"),
        (replace(RIGHT, outcome="unsupported"), "unsupported, but no reason is given"),
        (replace(RIGHT, outcome="fine"), "unknown outcome 'fine'"),  # type: ignore[arg-type]  # not an Outcome
    ],
)
def test_a_record_that_proves_nothing_has_failed(paths: Paths, found: CheckRecord, problem: str) -> None:
    verdict.write(path_of(paths, KERNEL), found)
    collected = collect_check(ReadCache(paths), KERNEL)
    assert collected.outcome == "failed" and problem in collected.detail


def test_the_declaration_of_an_operator_without_cells_fails_the_report(paths: Paths) -> None:
    """The engine lists the record: no other file shows that such an operator exists."""
    failed = CheckRecord(op="op", check="declaration", outcome="failed", detail="ops/op/spec.py:3: SyntaxError")
    verdict.write(paths.declaration_record("op"), failed)
    paths.report.mkdir(parents=True)
    paths.verdict_list.write_text(f"{paths.declaration_record('op')}\n")
    with pytest.raises(ReportError, match="1 of 1 check is neither verified nor unsupported"):
        write_report.run(paths, [])
    assert is_wrong(paths.report_data)
    [found] = json.loads(paths.report_data.read_text())["checks"]
    assert (found["op"], found["check"], found["outcome"]) == ("op", "declaration", "failed")
    assert checked(replace(failed, outcome="verified", detail="")).outcome == "verified"


def test_a_check_that_breaks_is_a_change(paths: Paths) -> None:
    before = document([], ENVIRONMENTS, checks=[RIGHT])
    now = document([], ENVIRONMENTS, checks=[replace(RIGHT, outcome="failed", detail="y differs")])
    entry = {"name": "op-kernel@torch2.13", "before": "verified", "now": "failed"}
    assert compare(now, before)["broken"] == [entry]
    old = {key: value for key, value in before.items() if key not in ("checks", "check_counts")} | {"schema": 3}
    assert compare(now, old)["new"] == [entry | {"before": None}]
    (paths.root / "report.json").write_text(text(now))
    assert is_wrong(paths.root / "report.json")


def test_checks_are_sorted_by_operator_then_check_then_torch() -> None:
    keys = [(c, torch) for c in ("gradient", "schema", "agreement") for torch in ("2.13", "2.9", "2.9+2.13")]
    found = [CheckRecord(op="op", check=check, torch=torch, outcome="verified") for check, torch in keys]
    ordered = [(c.check, c.torch) for c in checks_in_order(found)]
    expected = [(c, torch) for c in ("schema", "gradient", "agreement") for torch in ("2.9", "2.9+2.13", "2.13")]
    assert ordered == expected


def test_a_failed_part_of_register_has_the_command_that_repeats_it() -> None:
    failed = replace(RIGHT, outcome="failed", detail="y differs")
    assert failed.replay == "python -m opmatrix register op --part kernel --torch 2.13"
    assert replace(failed, detail="died\nReplay: python -m opmatrix ...").replay == ""
    assert CheckRecord(op="op", check="declaration", outcome="failed").replay == ""
