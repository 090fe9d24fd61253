"""Every form of the report names the checks that a torch does not have."""

from __future__ import annotations

import io

from rich.console import Console

from opmatrix.project.cells import Cell
from opmatrix.records.verdict import CheckRecord, Verdict
from opmatrix.report import markdown, page, terminal
from opmatrix.report.page import Background
from opmatrix.report.records import Skipped, skipped_checks
from opmatrix.report.report_json import document

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
