"""The records of checks in the report: a check without a valid record has failed. Every form of the report names the
checks that a torch does not have. A weak check is yellow in every output and in no exit code but that of `doit
--strict`.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from opmatrix.basics.errors import ReportError
from opmatrix.commands.run import _show_weak
from opmatrix.engine.tasks import StepTask
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.step import CheckKey, Step
from opmatrix.records.verdict import CheckRecord, Verdict
from opmatrix.report import junit, markdown, page, terminal, write_report
from opmatrix.report import page as html_page
from opmatrix.report.markdown import compare
from opmatrix.report.page import Background
from opmatrix.report.read_cache import ReadCache
from opmatrix.report.records import Skipped, checked, checks_in_order, collect_check, skipped_checks, totals
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


OLD = [
    Skipped(torch="1.13", reason="needs torch 2.4", checks=("gradient",), ops=("norm",)),
    Skipped(torch="1.13", reason="needs torch 2.4", checks=("test_schema", "test_faketensor"), ops=("norm", "scale")),
    Skipped(torch="2.0", reason="needs torch 2.4", checks=("gradient",), ops=("norm",)),
]


def record(op: str, torch: str) -> Verdict:
    cell = Cell(torch=torch, exporter="legacy", opset=17, ort="1.31")
    return Verdict(op=op, lowering="custom", cell=cell, outcome="verified")


RECORDS = [record(op, torch) for torch in ("2.0", "2.13", "1.13") for op in ("norm", "scale")]


def register(op: str, part: str, torch: str, *results: dict[str, str]) -> CheckRecord:
    return CheckRecord(op=op, check=part, torch=torch, outcome="verified", results=results)


def left_out(check: str) -> dict[str, str]:
    return {"check": check, "skipped": "skipped: needs torch 2.4"}


def test_skipped_checks_are_read_from_the_records_of_register() -> None:
    checks = [left_out("test_schema"), left_out("test_faketensor")]
    found = [register(op, "schema", "1.13", {"check": "schema", "result": "ok"}, *checks) for op in ("norm", "scale")]
    found += [register("norm", "gradient", torch, left_out("gradient")) for torch in ("2.0", "1.13")]
    found.append(register("norm", "exports", "2.13+2.15", {"check": "exports", "result": "ok"}))
    found.append(register("norm", "schema", "2.13", {"check": "test_schema", "result": "ok"}))
    assert list(skipped_checks(found)) == OLD
    assert skipped_checks(found[-1:]) == ()


def test_every_form_names_them() -> None:
    report = document(RECORDS, {}, OLD)
    assert report["skipped"][0] == {
        "torch": "1.13",
        "reason": "needs torch 2.4",
        "checks": ["gradient"],
        "ops": ["norm"],
    }
    summary = markdown.render(report, RECORDS, OLD)
    assert "### Not checked, and why\n\n- torch 1.13: gradient: needs torch 2.4 (norm)" in summary
    shown = page.data(report, RECORDS, [Background(log="", pictures={}) for _ in RECORDS])
    assert shown["skipped"] == report["skipped"]
    console = Console(record=True, width=100, file=io.StringIO())
    terminal.show(RECORDS, console, OLD)
    text = console.export_text()
    assert "not checked in torch 1.13\n  gradient: needs torch 2.4 (norm)\n  test_schema, test_faketensor: " in text
    assert "not checked in torch 2.0\n" in text


def test_nothing_is_reported_without_skipped_checks() -> None:
    assert "Not checked" not in markdown.render(document(RECORDS, {}), RECORDS)


KEY = CheckKey("op", "search", torch="2.13")
WHY = "the reference rejects 164 of 200 random inputs (82%), more than 50%. Declare what it requires"
WEAK = CheckRecord(
    op="op", check="search", torch="2.13", outcome="verified", results=({"check": "search"},), weak=(WHY,)
)
NOT_INDEPENDENT = CheckRecord(
    op="op",
    check="cases",
    outcome="verified",
    results=({"case": "a"},),
    weak=("reference: not independent: calls the library that the kernel wraps",),
)
FAILED = CheckRecord(op="op", check="search", torch="2.13", outcome="failed", detail="y differs", weak=(WHY,))


@pytest.mark.parametrize("weak", [WEAK, NOT_INDEPENDENT], ids=lambda weak: weak.check)
def test_every_output_names_it(weak: CheckRecord) -> None:
    name, why = str(weak), weak.weak[0]
    data = document([], ENVIRONMENTS, checks=[weak])
    assert data["check_counts"]["weak"] == 1 and data["checks"][0]["weak"] == [why]
    assert data["check_counts"]["verified"] == 1
    console = Console(record=True, width=200, force_terminal=True, color_system="standard", file=io.StringIO())
    terminal.show([], console, checks=[weak])
    shown = console.export_text(styles=True)
    assert f"\x1b[33m!\x1b[0m weak {name}" in shown and f"  {why}" in shown
    assert totals([], [weak]) == "0 cells: none asked for; 1 check: 1 verified (1 weak)"
    summary = markdown.render(data, [], checks=[weak])
    assert f"### Weak, and the remedy\n\n- ! `{name}`: {why}" in summary
    suite = ElementTree.fromstring(junit.render([], [weak]))
    assert suite.findtext(".//testcase/system-out") == f"weak: {why}"
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    page = html_page.data(data, [], [], [weak])
    assert [check["weak"] for check in page["checks"]] == [(why,)]


def test_a_failed_check_is_not_weak() -> None:
    assert totals([], [FAILED]).endswith("1 failed")
    assert document([], ENVIRONMENTS, checks=[FAILED])["check_counts"]["weak"] == 0
    assert html_page.data(document([], ENVIRONMENTS), [], [], [FAILED])["checks"][0]["weak"] == ()


def test_a_record_keeps_it_and_the_report_succeeds(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    verdict.write(paths.check_record(*KEY), WEAK)
    assert collect_check(ReadCache(paths), KEY) == WEAK
    paths.report.mkdir(parents=True)
    (paths.ops / "op").mkdir(parents=True)
    (paths.ops / "op/spec.py").write_text("")
    with pytest.raises(Exception, match="no cell was asked for"):  # which is all that is wrong with it
        write_report.run(paths, [], [KEY])
    assert "weak op-search@torch2.13" in capsys.readouterr().out
    assert json.loads(paths.report_data.read_text())["checks"][0]["outcome"] == "verified"


def test_an_old_record_has_no_weakness(paths: Paths) -> None:
    path = paths.check_record(*KEY)
    verdict.write(path, WEAK)
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "weak"}))
    assert verdict.read_check(path).weak == ()


def control(paths: Paths, found: CheckRecord) -> Any:
    key = CheckKey(found.op, found.check, torch=found.torch)
    path = paths.check_record(*key)
    verdict.write(path, found)
    step = Step(group="register", name=f"op-{found.check}", command=("register", "op"), check=key, verdict=str(path))
    group = SimpleNamespace(task_dep=[step.task])
    return SimpleNamespace(selected_tasks=["register"], tasks={"register": group, step.task: StepTask(step)})


@pytest.mark.parametrize("weak", [WEAK, NOT_INDEPENDENT], ids=lambda weak: weak.check)
def test_strict_refuses_a_weak_check(weak: CheckRecord, paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert _show_weak(control(paths, weak), strict=True)
    message = "--strict: 1 check weak:"
    assert capsys.readouterr().err == f"{message}\n{weak}\n  {weak.weak[0]}\n"
    assert not _show_weak(control(paths, FAILED), strict=True)
    assert capsys.readouterr().err == ""


def test_a_run_without_the_report_prints_a_weak_check(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    """As `doit OPERATOR` does. The report prints it itself."""
    chosen = control(paths, WEAK)
    _show_weak(chosen, strict=False)
    assert capsys.readouterr().err == f"1 check weak:\nop-search@torch2.13\n  {WHY}\n"
    chosen.tasks["report"] = StepTask(Step(group="report", name="", command=("report",)))
    chosen.selected_tasks.append("report")
    assert not _show_weak(chosen, strict=False)
    assert capsys.readouterr().err == ""
