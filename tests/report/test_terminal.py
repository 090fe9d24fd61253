"""The report in a terminal: an unknown cell is a failure, and words, not only colours, say everything."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from opmatrix.basics.errors import ReportError
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CaseResult, CheckRecord, FailedStep, Outcome, Verdict
from opmatrix.report import junit, terminal, write_report
from opmatrix.report.read_cache import ReadCache
from opmatrix.report.records import collect, totals
from opmatrix.report.report_json import is_wrong
from opmatrix.spec import Lowering
from tests.report.many import checks

CELLS = tuple(Cell(torch="2.13", exporter="dynamo", opset=opset, ort="1.31") for opset in (18, 20, 21))
EXPECTED: list[tuple[str, Lowering, Cell]] = [("op", "custom", cell) for cell in CELLS]
RIGHT = CaseResult(case="plain", model="static", outcome="verified", error=2e-7, ulp=1.0, tolerance_used=0.25)
WRONG = CaseResult(case="large", model="static", outcome="mismatched", detail="3 of 64 elements differ")

Write = Callable[..., None]


def make(cell: Cell, outcome: Outcome = "verified", **fields: Any) -> Verdict:
    cases = fields.pop("cases", (RIGHT,))
    return Verdict(op="op", lowering="custom", cell=cell, outcome=outcome, cases=cases, **fields)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a project all of whose cells are verified."""
    paths = Paths(tmp_path)
    for cell in CELLS:
        verdict.write(paths.verdict("op", "custom", cell), make(cell))
    return paths


def plant(paths: Paths, found: Verdict) -> None:
    verdict.write(paths.verdict("op", "custom", CELLS[1]), found)


def cells(paths: Paths) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((paths.report / "report.json").read_text())["cells"]
    return found


def test_all_verified(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    write_report.run(paths, EXPECTED)
    assert capsys.readouterr().out.endswith("3 cells: 3 verified\nbuild/report/index.html\n")
    whole = json.loads((paths.report / "report.json").read_text())
    assert whole["counts"] == {"cells": 3, "verified": 3, "mismatched": 0, "failed": 0, "unsupported": 0}
    assert whole["environments"]["main"].keys() >= {"python", "torch", "onnxruntime"}
    assert cells(paths)[0] == {
        "op": "op", "lowering": "custom", "torch": "2.13", "exporter": "dynamo", "opset": 18, "ort": "1.31",
        "outcome": "verified", "worst_error": 2e-7, "worst_ulp": 1.0, "worst_tolerance_used": 0.25,
        "detail": "", "reference": "", "cpu_levels": [], "cases": "op-custom-1",
    }  # fmt: skip
    assert {cell["cases"] for cell in cells(paths)} == {*whole["cases"]} == {"op-custom-1"}
    assert whole["cases"]["op-custom-1"] == [RIGHT.__dict__]


def test_a_missing_verdict_is_a_failure(paths: Paths) -> None:
    paths.verdict("op", "custom", CELLS[1]).unlink()
    with pytest.raises(ReportError, match="1 of 3 cells is neither verified nor unsupported"):
        write_report.run(paths, EXPECTED)
    assert cells(paths)[1]["outcome"] == "failed"
    assert cells(paths)[1]["detail"].startswith("no verdict: ")


def test_a_damaged_verdict_is_a_failure(paths: Paths) -> None:
    paths.verdict("op", "custom", CELLS[1]).write_text("{")
    assert collect(ReadCache(paths), "op", "custom", CELLS[1]).outcome == "failed"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (make(CELLS[1], "unsupported", cases=()), "unsupported, but no reason is given"),
        (make(CELLS[1], cases=()), "verified, but no case was run"),
        (make(CELLS[1], cases=(RIGHT, WRONG)), "verified, but not all of its cases are"),
        (make(CELLS[0]), f"the file contains another verdict, op-custom@{CELLS[0]}"),
        (make(CELLS[1], "fine"), "unknown outcome 'fine'"),  # type: ignore[arg-type]  # not an Outcome
    ],
)
def test_a_verdict_without_checks_is_a_failure(paths: Paths, found: Verdict, reason: str) -> None:
    plant(paths, found)
    with pytest.raises(ReportError):
        write_report.run(paths, EXPECTED)
    assert cells(paths)[1]["outcome"] == "failed"
    assert reason in cells(paths)[1]["detail"]


def test_unsupported_with_a_reason_is_no_failure(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    plant(paths, make(CELLS[1], "unsupported", detail="opset 20 has no such op", cases=()))
    write_report.run(paths, EXPECTED)
    shown = capsys.readouterr().out
    assert "3 cells: 2 verified, 1 unsupported" in shown
    assert "○ op-custom: unsupported in 1 cell: opset 20 has no such op\n" in shown


def test_no_cell_at_all_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no operator in ops/ yet, so there is nothing to verify; `doit new`"):
        write_report.run(Paths(tmp_path), [])
    (tmp_path / "ops/one").mkdir(parents=True)
    (tmp_path / "ops/one/spec.py").touch()
    with pytest.raises(ReportError, match="no cell was asked for"):
        write_report.run(Paths(tmp_path), [])


def show(records: list[Verdict], *, width: int = 80, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    terminal.show(records, Console(file=stream, width=width, no_color=True))
    stream.seek(0)
    return stream.read()


def records(found: Verdict) -> list[Verdict]:
    return [make(CELLS[0]), found]


@pytest.mark.parametrize(("error", "limit"), [(None, None), (1.0, None)])
def test_a_mismatch_without_a_finite_error_has_no_share_of_its_tolerance(
    paths: Paths, error: float | None, limit: float | None
) -> None:
    """With a tolerance of 0 any error is too large; a NaN on one side is no error."""
    wrong = replace(WRONG, error=error, tolerance_used=limit)
    found = make(CELLS[1], "mismatched", detail="1 of 2 cases", cases=(replace(RIGHT, tolerance_used=0.0), wrong))
    assert f"{'inf' if error is None else '1.0e+00'} >999%" in show(records(found), encoding="ascii")
    plant(paths, found)
    with pytest.raises(ReportError):
        write_report.run(paths, EXPECTED)
    first = cells(paths)[1]
    assert (first["worst_error"], first["worst_tolerance_used"]) == (error, None)


MISMATCHED = make(CELLS[1], "mismatched", detail="1 of 2 cases; large: 3 of 64 elements differ", cases=(RIGHT, WRONG))


@pytest.mark.parametrize("width", [80, 200])
def test_a_mismatch_has_its_replay_command(width: int) -> None:
    shown = show(records(MISMATCHED), width=width)
    assert "✓ 18" in shown
    assert "≠ 20" in shown
    assert f"≠ mismatched op-custom@{CELLS[1]}\n  1 of 2 cases; large: 3 of 64 elements differ\n" in shown
    assert f"  Replay: {MISMATCHED.replay('large')}\n" in shown  # in one line, for copying


def test_a_narrow_terminal_has_the_whole_table() -> None:
    wrong = [replace(make(cell, "mismatched", cases=(RIGHT, WRONG)), op="scaled_relu") for cell in CELLS]
    shown = show(wrong, width=40)
    table = [line.split() for line in shown[shown.index("torch 2.13,") :].splitlines() if line.startswith(" ")]
    for word in ("scaled_relu-custom", "18", "20", "21"):
        assert any(word in line for line in table), shown
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown


def test_a_terminal_without_unicode_gets_letters() -> None:
    shown = show(records(MISMATCHED), encoding="ascii")
    assert "ok 18" in shown
    assert "!= mismatched" in shown


def test_markup_in_a_detail_is_shown_literally() -> None:
    assert "  [bold]x[/]\n" in show(records(make(CELLS[1], "failed", detail="[bold]x[/]", cases=())))


def test_cells_that_fail_alike_are_grouped() -> None:
    """Their opsets, counts and values differ, and these are in report.json."""
    rest = "\n".join(f"line {n}" for n in range(59))
    alike = [make(c, "failed", detail=f"{n} of 64 differ at opset {c.opset}\n{rest}") for n, c in enumerate(CELLS)]
    other = make(CELLS[0], "failed", detail="0 of 64 differ")
    shown = show([*alike, replace(other, op="other")])
    assert f"✗ failed op-custom@{CELLS[0]}\n  also op-custom@{CELLS[1]}, op-custom@{CELLS[2]}\n" in shown
    assert shown.count("✗ failed") == 2
    assert shown.count("line 0") == 1
    assert "(20 more lines in report.json)" in shown


def test_what_one_failed_step_prevents_is_grouped_over_operators() -> None:
    blocked_by = FailedStep(group="environment", name="torch2.9")
    detail = "not run: environment:torch2.9 failed: no network"
    found = [make(CELLS[0], "failed", detail=detail, blocked_by=blocked_by, cases=())]
    shown = show([replace(v, op=f"op{n}") for n in range(20) for v in found])
    assert shown.count("no network") == 1 and " and 7 more\n" in shown


def test_what_did_not_run_has_a_mark_and_a_word_of_its_own() -> None:
    blocked_by = FailedStep(group="environment", name="torch2.9")
    prevented = make(CELLS[0], "failed", detail="not run: environment:torch2.9 failed", blocked_by=blocked_by, cases=())
    shown = show([prevented, make(CELLS[1]), make(CELLS[2], "failed", detail="died", cases=())])
    assert f"⊘ not run op-custom@{CELLS[0]}\n" in shown and f"✗ failed op-custom@{CELLS[2]}\n" in shown
    assert re.search(r" ⊘ \d+", shown), "in the table"
    assert "3 cells: 1 verified, 1 failed, 1 not run\n" in shown


def test_a_declaration_that_is_wrong_is_a_line_before_the_last_lines_of_the_run() -> None:
    """doit's last lines have a mistake that is alone; several are all here, and in a report by hand each."""
    one = CheckRecord(op="op", check="declaration", outcome="failed", detail="ops/op/spec.py: no\nReplay: python")
    said = "✗ op: none of its cells is planned, because its declaration is wrong\n"

    def printed(record: CheckRecord, ran: set[str] | None) -> str:
        stream = io.StringIO()
        terminal.show([], Console(file=stream, width=80, no_color=True), checks=[record], ran=ran)
        return stream.getvalue()

    assert said in printed(one, {"op"}) and "spec.py" not in printed(one, {"op"})
    assert f"{said}  ops/op/spec.py: no\n" in printed(one, None)
    assert "other" in printed(replace(one, detail=f"ops/op/cases.py: other\n{one.detail}"), {"op"})


def test_the_kernel_is_the_last_check_before_the_table() -> None:
    def wrong(check: str) -> CheckRecord:
        return CheckRecord(op="op", check=check, torch="2.13", outcome="failed", detail=f"{check} is wrong")

    stream = io.StringIO()
    terminal.show([make(CELLS[0])], Console(file=stream, width=80), checks=[wrong("kernel"), wrong("search")])
    assert stream.getvalue().index("search is wrong") < stream.getvalue().index("kernel is wrong")


def table_of(records: list[Verdict], *, ran: set[str] | None = None) -> list[str]:
    stream = io.StringIO()
    terminal.show(records, Console(file=stream, width=80, no_color=True), ran=ran)
    return [" ".join(line.split()) for line in stream.getvalue().splitlines() if line.strip()]


def test_the_table_of_a_green_run_has_a_row_for_each_operator_of_which_a_step_ran() -> None:
    exporters = [Cell(torch="2.13", exporter=e, opset=o, ort="1.31") for e in ("legacy", "dynamo") for o in (18, 20)]
    found = [replace(make(cell), op=op) for op in ("one", "two", "three") for cell in exporters]
    assert table_of(found, ran={"two"})[3:] == [
        "two-custom ✓ 4 legacy 18-20, dynamo 18-20 2.0e-07 25%",
        "✓ 2 unchanged operators: 8 cells verified",
        "12 cells: 12 verified",
    ]
    assert len(table_of(found)) == 7
    many = [replace(v, op=f"op{n}") for n in range(100) for v in found[:1]]
    assert table_of(many)[-2:] == ["✓ 80 more operators: 80 cells verified", "100 cells: 100 verified"]


def test_the_table_of_a_run_with_failures_has_only_the_operators_that_are_wrong() -> None:
    others = [replace(make(cell), op="other") for cell in CELLS]
    old = replace(make(replace(CELLS[0], torch="2.9")))
    wrong = [make(CELLS[0]), make(CELLS[1], "mismatched", detail="3 of 64", cases=(WRONG,)), old]
    shown = [line for line in table_of([*wrong, *others], ran={"op"}) if "─" not in line]
    assert shown[-7:] == [
        "torch 2.9 to 2.13, ONNX Runtime 1.31",
        "operator exporter opsets error, of limit",
        "op-custom torch2.13-dynamo ort1.31 ✓ 18 inf >999%",
        "≠ 20",
        "op-custom other cells ✓ 18 2.0e-07 25%",
        "✓ 1 other operator: 3 cells verified",
        "6 cells: 5 verified, 1 mismatched",
    ]


def test_a_long_detail_ends_with_its_commands() -> None:
    commands = ["Replay: python -m opmatrix register op --part kernel", "Debug: gdb"]
    detail = "\n".join(["died of SIGSEGV", *(f"frame {n}" for n in range(60)), *commands])
    shown = show([make(CELLS[0], "failed", detail=detail, cases=())])
    assert "  frame 38\n  (21 more lines in report.json)\n  " + "\n  ".join(commands) + "\n" in shown


def test_a_table_of_several_versions_names_them() -> None:
    other = replace(CELLS[1], torch="2.9", ort="1.16")
    assert "torch 2.9 to 2.13, ONNX Runtime 1.16 to 1.31 " in show([make(c) for c in (CELLS[0], other)])


def test_totals() -> None:
    assert totals([]) == "0 cells: none asked for"
    assert totals(records(MISMATCHED)[1:]) == "1 cell: 1 mismatched"
    assert totals([make(CELLS[0])], checks()[:2]) == "1 cell: 1 verified; 2 checks: 1 verified, 1 failed"


def test_junit_has_a_suite_per_operator_and_a_test_per_cell_and_check() -> None:
    whole = make(CELLS[2], "failed", detail="died of SIGSEGV\x00\nlast line", cases=())
    unsupported = make(CELLS[0], "unsupported", detail="why", cases=())
    check = CheckRecord(op="op", check="agreement", lowering="custom", torch="2.9+2.13", outcome="verified")
    other = replace(make(CELLS[0]), op="other")
    found = [make(CELLS[0]), MISMATCHED, whole, unsupported, other]
    root = ElementTree.fromstring(junit.render(found, [check]))
    assert {k: root.get(k) for k in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "6", "failures": "1", "errors": "1", "skipped": "1", "time": None,
    }  # fmt: skip
    assert [(s.get("name"), s.get("tests"), s.get("failures")) for s in root] == [("op", "5", "1"), ("other", "1", "0")]
    assert [(case.get("classname"), case.get("name")) for case in root[0]] == [
        *(("op.custom", str(found[n].cell)) for n in range(4)),
        ("op.custom", "agreement@torch2.9+2.13"),
    ]
    failure = root.find(".//failure")
    assert failure is not None and failure.get("message") == MISMATCHED.detail
    error = root.find(".//error")
    assert error is not None
    assert error.get("message") == "died of SIGSEGV\N{REPLACEMENT CHARACTER}"
    assert error.text == "died of SIGSEGV\N{REPLACEMENT CHARACTER}\nlast line"


def test_junit_has_the_message_of_each_wrong_case() -> None:
    second = replace(WRONG, case="other", detail="y differs")
    found = replace(MISMATCHED, detail="2 of 3 cases; large: too much", cases=(RIGHT, WRONG, second))
    found = replace(found, cases=(RIGHT, replace(WRONG, detail="too much"), second))
    (failure,) = ElementTree.fromstring(junit.render([found])).iter("failure")
    again = f"Replay: ./run {found.replay('large')}"
    assert failure.text == f"2 of 3 cases; large: too much\nother: y differs\n{again}"


def test_a_verified_cell_may_have_an_unsupported_case(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    refused = CaseResult(case="plain_float64", model="double", outcome="unsupported", detail="no float64 kernel")
    for cell in CELLS:
        verdict.write(paths.verdict("op", "custom", cell), make(cell, cases=(RIGHT, refused)))
    write_report.run(paths, EXPECTED)
    assert (
        "○ op-custom: 1 case unsupported in 3 cells: no float64 kernel\n3 cells: 3 verified\n"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("cases", "problem"),
    [
        ((CaseResult(case="a", model="m", outcome="unsupported", detail="why"),), "all of its cases are unsupported"),
        ((RIGHT, CaseResult(case="a", model="m", outcome="unsupported")), "unsupported, but no reason is given"),
    ],
)
def test_only_unsupported_cases_verify_no_cell(paths: Paths, cases: tuple[CaseResult, ...], problem: str) -> None:
    plant(paths, make(CELLS[1], cases=cases))
    found = collect(ReadCache(paths), "op", "custom", CELLS[1])
    assert found.outcome == "failed" and problem in found.detail


def test_a_cell_without_torch_has_its_own_row(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    cell = Cell(torch=None, exporter="node", opset=18, ort="1.31")
    verdict.write(paths.verdict("op", "custom", cell), make(cell))
    write_report.run(paths, [*EXPECTED, ("op", "custom", cell)])
    shown = capsys.readouterr().out
    assert "torch 2.13, ONNX Runtime 1.31" in shown
    assert "✓ 4     dynamo 18-21, node 18" in shown
    assert cells(paths)[3]["torch"] is None


# The cells of other runs.

OTHERS = tuple(
    Cell(torch=torch, exporter="legacy", opset=opset, ort=ort)
    for torch, opset, ort in (("2.9", 9, "1.31"), ("2.13", 18, "1.16"), ("1.13", 17, "1.31"))
)


def cover(paths: Paths, cells: Iterable[Cell]) -> None:
    """Write the list of verdicts of a report, as the runner does."""
    verdicts = [paths.verdict("op", "custom", cell) for cell in cells]
    paths.verdict_list.parent.mkdir(parents=True, exist_ok=True)
    paths.verdict_list.write_text("".join(f"{path}\n" for path in verdicts))


@pytest.fixture
def several(paths: Paths) -> Paths:
    """Return the project with up-to-date verdicts of other runs."""
    for cell in OTHERS:
        verdict.write(paths.verdict("op", "custom", cell), make(cell))
    cover(paths, (*CELLS, *OTHERS))
    return paths


def written(paths: Paths) -> list[bytes]:
    return [path.read_bytes() for path in paths.report_files]


def test_the_files_do_not_depend_on_the_choice_of_cells(several: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    write_report.run(several, EXPECTED)
    first, said = written(several), capsys.readouterr().out
    assert "3 cells: 3 verified\nfrom earlier runs, not asked for in this one: 3 cells: 3 verified\n" in said
    write_report.run(several, [("op", "custom", OTHERS[0])])
    assert written(several) == first
    said = capsys.readouterr().out
    assert "torch 2.9, ONNX Runtime 1.31" in said
    assert "1 cell: 1 verified\nfrom earlier runs, not asked for in this one: 5 cells: 5 verified\n" in said
    assert not several.previous_report.exists(), "no other run"


def test_the_cells_have_the_order_of_the_matrix(several: Paths) -> None:
    node = Cell(torch=None, exporter="node", opset=9, ort="1.31")
    verdict.write(several.verdict("op", "custom", node), make(node))
    write_report.run(several, [("op", "custom", cell) for cell in (node, *reversed(CELLS))])
    found = [(c["torch"], c["ort"], c["exporter"], c["opset"]) for c in cells(several)]
    assert found == [
        ("1.13", "1.31", "legacy", 17), ("2.9", "1.31", "legacy", 9), ("2.13", "1.16", "legacy", 18),
        ("2.13", "1.31", "dynamo", 18), ("2.13", "1.31", "dynamo", 20), ("2.13", "1.31", "dynamo", 21),
        (None, "1.31", "node", 9),
    ]  # fmt: skip


def test_a_cell_that_no_longer_exists_leaves_the_report(several: Paths) -> None:
    write_report.run(several, EXPECTED)
    write_report.run(several, EXPECTED, exists=lambda op, lowering, cell: cell.opset != 9)
    changes = json.loads(several.report_data.read_text())["changes"]
    assert [entry["name"] for entry in changes["gone"]] == [f"op-custom@{OTHERS[0]}"]


def test_a_wrong_cell_of_another_run_is_shown_and_does_not_fail_this_one(several: Paths) -> None:
    verdict.write(several.verdict("op", "custom", OTHERS[0]), make(OTHERS[0], "failed", detail="died", cases=()))
    write_report.run(several, EXPECTED)
    assert is_wrong(several.report_data)
    with pytest.raises(ReportError, match="1 of 1 cell is neither verified nor unsupported"):
        write_report.run(several, [("op", "custom", OTHERS[0])])


def test_the_report_has_the_versions_of_each_environment_with_cells(several: Paths) -> None:
    """The environment of torch 1.13 could not be made, and so has none; a torch without cells is left out."""
    for name, package, version in (
        ("torch2.9", "torch", "2.9.1+cpu"), ("torch2.9", "numpy", "2.3.1"), ("torch2.6", "torch", "2.6.0"),
        ("ort1.16", "onnxruntime", "1.16.3"),
    ):  # fmt: skip
        several.installed_version(name, package).parent.mkdir(parents=True, exist_ok=True)
        several.installed_version(name, package).write_text(f"{version}\n")
    (several.environment("torch2.9") / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    write_report.run(several, EXPECTED)
    found = json.loads(several.report_data.read_text())["environments"]
    assert [*found] == ["main", "torch2.9", "ort1.16"]
    assert found["torch2.9"] == {"python": "3.11.7", "torch": "2.9.1+cpu", "numpy": "2.3.1"}
    assert found["ort1.16"] == {"python": "unknown", "onnxruntime": "1.16.3"}


def test_only_operators_that_compat_cannot_run_are_named() -> None:
    stream = io.StringIO()
    old = CheckRecord(op="old", check="compat", torch="1.13", outcome="unsupported", detail="needs torch 2.4")
    placeholder = CheckRecord(op="new", check="cases", outcome="unsupported", detail="TODO is left")
    terminal.show_compat([placeholder, old], Console(file=stream, width=80, no_color=True))
    assert stream.getvalue() == "○ old unsupported in torch 1.13: needs torch 2.4\n"
