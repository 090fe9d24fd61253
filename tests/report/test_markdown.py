"""The summary for pull requests."""

from __future__ import annotations

from dataclasses import replace

from opmatrix.records.verdict import CaseResult, CheckRecord, Outcome, Verdict
from opmatrix.report import markdown
from opmatrix.report.markdown import compare
from opmatrix.report.report_json import document
from tests.report.many import ENVIRONMENTS, cells, records, verdict

CELLS = list(cells())


def render(found: list[Verdict], before: list[Verdict] | None = None) -> str:
    report = document(found, ENVIRONMENTS)
    if before is not None:
        report["changes"] = compare(report, document(before, ENVIRONMENTS))
    return markdown.render(report, found)


def record(outcome: Outcome = "verified", *, place: int = 0, detail: str = "", op: str = "op") -> Verdict:
    return verdict(op, CELLS[place], outcome, detail=detail)


def test_a_report_without_faults() -> None:
    text = render([record()], [record()])
    assert text.startswith("## opmatrix: 1 cell: 1 verified\n\nSince the previous run: everything as before.\n")
    assert "What is wrong" not in text
    assert text.endswith(
        "<sub>main: python 3.11.7, torch 2.13.0+cpu, onnxruntime 1.31.1<br>\n"
        "torch2.9: python 3.11.7, torch 2.9.1+cpu, numpy 2.3.1<br>\n"
        "ort1.16: python 3.11.2, onnxruntime 1.16.3, numpy 1.26.4</sub>\n"
    )


def test_a_report_without_cells() -> None:
    assert render([]).startswith("## opmatrix: 0 cells: none asked for\n\nThere is no previous run")


def test_a_fault_has_its_detail_and_replay_command() -> None:
    wrong = record("mismatched", detail="1 of 2 cases; case_1: 3 of 64 elements differ")
    text = render([wrong])
    assert f"≠ **mismatched**\n\n- `op-custom@{CELLS[0]}`\n\n```text\n1 of 2 cases; case_1: 3 of 64" in text
    assert f"```text\n./run {wrong.replay('case_1')}\n```" in text


def test_broken_and_fixed_cells() -> None:
    text = render([record("failed", detail="x"), record(place=1), record("failed", place=2, detail="x")],
                  [record(), record("failed", place=1, detail="x")])  # fmt: skip
    assert "Since the previous run: 1 broken, 1 fixed, 1 new." in text
    assert f"**Newly broken**\n\n- `op-custom@{CELLS[0]}`: verified → failed\n\n" in text
    assert f"**Newly fixed**\n\n- `op-custom@{CELLS[1]}`: failed → verified\n\n" in text
    assert f"**New and wrong**\n\n- `op-custom@{CELLS[2]}`: failed\n\n" in text


def test_the_table_has_a_row_per_torch_and_a_column_per_runtime() -> None:
    lines = render(records(1)).splitlines()
    rows = [line for line in lines if line.startswith("| operator")]
    assert rows[0] == "| operator | torch | " + " | ".join(
        f"ONNX Runtime {ort}" for ort in ("1.16", "1.18", "1.21", "1.24", "1.31")
    ) + " |"  # fmt: skip
    assert [row.split(" | ")[1] for row in rows[1:]] == ["1.13", "2.0", "2.6", "2.9", "2.13", "2.15", "without"]
    assert rows[2] == "| operator\\_00-custom | 2.0 | ✓ 5 | ✗ 1, ✓ 4 | ✓ 5 | ✓ 5 | ✓ 5 |"
    assert rows[-1] == "| operator\\_00-custom | without |  |  |  |  | ✓ 3 |"
    assert sum("≠ 1" in row for row in rows) == sum(r.outcome == "mismatched" for r in records(1)) == 2


def test_a_hostile_detail_stays_in_its_block() -> None:
    hostile = "`````\n</sub><script>alert(1)</script> | @everybody\n# heading"
    text = render([record("failed", detail=hostile)])
    assert f"``````text\n{hostile}\n``````" in text
    unsupported = render([record("unsupported", detail="<b>a|b</b> @all *x*")])
    assert "\\<b\\>a\\|b\\</b\\> @\N{ZERO WIDTH SPACE}all \\*x\\*" in unsupported


def test_unsupported_cases_of_verified_cells_are_counted() -> None:
    refused = CaseResult(case="float64", model="double", outcome="unsupported", detail="no float64 kernel")
    found = record()
    found = replace(found, cases=(*found.cases, refused))
    assert "- `op-custom-float64` in 1 cell: no float64 kernel" in render([found])


def test_a_summary_of_any_size_fits_in_a_comment() -> None:
    """GitHub takes 65,536 characters."""
    long = "\n".join("x" * 1000 for _ in range(100))
    worst = [record("failed", place=place, op=f"an_operator_with_a_long_name_{op:02}", detail=f"{op} {place} {long}")
             for op in range(40) for place in range(len(CELLS))]  # fmt: skip
    right = [replace(r, outcome="verified") for r in worst]
    text = render(worst, right)
    assert 15_000 < len(text) < 65_000
    assert "more faults are in index.html" in text and "rows; those in which nothing is wrong" in text


def test_the_table_of_checks_says_what_it_leaves_out() -> None:
    found = [CheckRecord(op=f"op{n}", check="kernel", torch="2.13", outcome="verified") for n in range(101)]
    found[7] = replace(found[7], outcome="failed")
    text = markdown.render(document([], ENVIRONMENTS, checks=found), [], checks=found)
    assert "| op7 | ✗ 1 |\n\n101 rows; those in which nothing is wrong are left out." in text
    assert "left out" not in markdown.render(document([], ENVIRONMENTS, checks=found[1:]), [], checks=found[1:])
