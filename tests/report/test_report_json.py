"""report.json matches the schema in the package, and docs/reference/report-schema.md describes all of it. The summary
for pull requests. A report reads again what changed, and nothing else. Without the cache, or with a damaged one, it
reads all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from opmatrix.project.paths import Paths
from opmatrix.records import verdict as verdicts
from opmatrix.records.verdict import CaseResult, CheckRecord, FailedStep, Found, Outcome, Verdict
from opmatrix.report import markdown, read_cache
from opmatrix.report.markdown import compare
from opmatrix.report.read_cache import ReadCache
from opmatrix.report.records import OUTCOMES, SCHEMA
from opmatrix.report.report_json import document, text
from tests.report.many import ENVIRONMENTS, GRAPH, cells, checks, records, verdict
from tests.support.json_schema import mistakes

WHOLE: dict[str, Any] = json.loads(resources.files("opmatrix.report").joinpath("report.schema.json").read_text())


def report() -> dict[str, Any]:
    """Return a report with every possible part, as it is read from its file."""
    found, before = records(3), records(2)[1:]
    made = document(found, ENVIRONMENTS, checks=checks())
    made["changes"] = compare(
        made, document([*before, *records(4)[-1:]], ENVIRONMENTS | {"torch2.9": {"torch": "2.9.0"}})
    )
    loaded: dict[str, Any] = json.loads(text(made))
    return loaded


def test_a_report_matches_the_schema() -> None:
    whole = report()
    assert not list(mistakes(whole, WHOLE))
    assert not list(mistakes(whole | {"changes": None}, WHOLE))
    assert all(whole["changes"][kind] for kind in ("new", "gone")) and whole["changes"]["versions"]
    assert {c["outcome"] for c in whole["cells"]} == {*OUTCOMES}


def _delete(found: dict[str, Any]) -> None:
    del found["cells"][3]["ort"]


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lambda r: r.update(schema=1), "report.schema: 1 is not 5"),
        (lambda r: r["counts"].pop("failed"), "report.counts: no 'failed'"),
        (lambda r: r["check_counts"].pop("failed"), "report.check_counts: no 'failed'"),
        (lambda r: r["checks"][0].update(outcome="fine"), "report.checks[0].outcome: 'fine' is not"),
        (_delete, "report.cells[3]: no 'ort'"),
        (lambda r: r["cells"][0].update(outcome="fine"), "report.cells[0].outcome: 'fine' is not"),
        (lambda r: r["cells"][0].update(torch="2.13.0"), "report.cells[0].torch: '2.13.0' is none of"),
        (lambda r: r["cells"][0].update(opset=True), "report.cells[0].opset: True is no integer"),
        (
            lambda r: r["cases"]["operator_00-custom-1"][0].update(ulp=-1),
            "report.cases.operator_00-custom-1[0].ulp: -1 is below 0",
        ),
        (lambda r: r["changes"]["new"][0].pop("now"), "report.changes.new[0]: no 'now'"),
        (lambda r: r["environments"].pop("main"), "report.environments: no 'main'"),
        (lambda r: r["environments"]["ort1.16"].pop("python"), "report.environments.ort1.16: no 'python'"),
        (
            lambda r: r["changes"]["versions"].update(main={"torch": ["1"]}),
            "report.changes.versions.main.torch: 1 items",
        ),
        (lambda r: r["changes"]["gone"][0].update(name="Op"), "report.changes.gone[0].name: 'Op' does not match"),
    ],
)
def test_the_schema_refuses_invalid_reports(plant: Callable[[dict[str, Any]], None], said: str) -> None:
    whole = report()
    plant(whole)
    assert [m for m in mistakes(whole, WHOLE) if m.startswith(said)]


def test_cells_of_an_operator_with_equal_cases_share_a_list() -> None:
    found = records(2)
    whole = document(found, ENVIRONMENTS)
    assert len(whole["cases"]) == 2 * 3, "verified, mismatched, and without cases, of each operator"
    for cell, one in zip(whole["cells"], found, strict=True):
        assert whole["cases"][cell["cases"]] == [case.as_json() for case in one.cases]
        assert cell["cases"].startswith(f"{one.op}-custom-")


def test_the_schema_has_the_version_and_the_outcomes_of_the_code() -> None:
    assert WHOLE["properties"]["schema"]["const"] == SCHEMA
    assert WHOLE["$defs"]["outcome"]["enum"] == [*OUTCOMES]


def test_every_key_of_a_report_is_described_and_documented(root: Path) -> None:
    page = (root / "docs/reference/report-schema.md").read_text()
    whole = report()
    described = {
        "": (whole, WHOLE),
        "changes": (whole["changes"], WHOLE["properties"]["changes"]),
        "change": (whole["changes"]["new"][0], WHOLE["$defs"]["change"]),
        "cell": (whole["cells"][0], WHOLE["$defs"]["cell"]),
        "check": (whole["checks"][0], WHOLE["$defs"]["check"]),
        "case": (whole["cases"]["operator_00-custom-1"][0], WHOLE["$defs"]["case"]),
    }
    for where, (value, schema) in described.items():
        assert value.keys() == schema["properties"].keys() == {*schema["required"]}, where
        named = {f"`{key}`" if where != "changes" else f"`changes.{key}`" for key in value}
        assert not {name for name in named if name not in page}, where


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


READ_CELLS = [*cells()][:3]
WRONG = replace(verdict("op", READ_CELLS[2], "mismatched"), detail='why: "cases": [\n')
CHECK = CheckRecord(op="op", check="kernel", torch="2.13", outcome="failed", results=({"case": "a"},), weak=("w",),
                    blocked_by=FailedStep(group="compile", name="op"))  # fmt: skip
FOUND: list[Found] = [verdict("op", READ_CELLS[0]), verdict("op", READ_CELLS[1]), WRONG, CHECK]


def path_of(paths: Paths, found: Found) -> Path:
    return paths.verdict(*found.key) if isinstance(found, Verdict) else paths.check_record(*found.key)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a project with verdicts, of which two are equal but for the cell, a check record, and a drawing."""
    made = Paths(tmp_path)
    for found in FOUND:
        verdicts.write(path_of(made, found), found)
    path = made.graph_drawings("op", "custom", READ_CELLS[0])
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(GRAPH))
    return made


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the names of the files that are read. Every file is old: tests write and read within a tick."""
    names: list[str] = []
    text_of = Path.read_text

    def read_text(path: Path, encoding: str | None = None) -> str:
        names.append(path.name)
        return text_of(path, encoding)

    monkeypatch.setattr(read_cache, "settled", lambda *_: True)
    monkeypatch.setattr(Path, "read_text", read_text)
    yield names


def read_report(paths: Paths) -> list[Found]:
    """Read all as a report does, and keep it."""
    cache = ReadCache(paths)
    found = [cache.record(path_of(paths, one)) for one in FOUND]
    assert cache.drawings(paths.graph_drawings("op", "custom", READ_CELLS[0])) == GRAPH
    cache.save()
    return found


def test_a_second_report_reads_only_the_cache(paths: Paths, read: list[str]) -> None:
    first = read_report(paths)
    assert first == FOUND and len(read) == 6
    read.clear()
    assert read_report(paths) == FOUND
    assert read == ["cache.json"]


def test_a_file_that_changed_is_read_again(paths: Paths, read: list[str]) -> None:
    read_report(paths)
    read.clear()
    path, now = path_of(paths, WRONG), replace(WRONG, detail=WRONG.detail.replace("why", "who"))
    before = path.stat()
    verdicts.write(path, now)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size, "neither size nor time stamp tells"
    assert read_report(paths) == [*FOUND[:2], now, CHECK]
    assert read == ["cache.json", path.name]
    assert read_report(paths)[2] == now


def test_cells_in_which_the_same_was_measured_share_their_cases(paths: Paths, read: list[str]) -> None:
    for _ in range(2):
        first, second, other, _check = read_report(paths)
        assert isinstance(first, Verdict) and isinstance(second, Verdict) and isinstance(other, Verdict)
        assert first.cases is second.cases is not other.cases
    assert len(json.loads(paths.report_cache.read_text())["texts"]) == 4, "two lists of cases, a drawing, and none"


def test_a_file_that_may_change_within_a_tick_is_read_again(
    paths: Paths, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_cache, "settled", lambda *_: False)
    read_report(paths)
    read.clear()
    read_report(paths)
    assert len(read) == 6


def test_what_is_gone_leaves_the_cache(paths: Paths, read: list[str]) -> None:
    read_report(paths)
    cache = ReadCache(paths)
    assert cache.record(path_of(paths, CHECK)) == CHECK
    cache.save()
    kept = json.loads(paths.report_cache.read_text())
    assert [*kept["files"]] == [str(path_of(paths, CHECK).relative_to(paths.root))] and kept["texts"] == [""]
    path_of(paths, CHECK).unlink()
    with pytest.raises(FileNotFoundError):
        ReadCache(paths).record(path_of(paths, CHECK))


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"form": 1}', '{"form": null, "files": 3}'])
def test_a_damaged_cache_is_not_used(paths: Paths, damaged: str) -> None:
    read_report(paths)
    paths.report_cache.write_text(damaged)
    assert read_report(paths) == FOUND


def test_a_moved_project_keeps_its_cache(paths: Paths, read: list[str]) -> None:
    read_report(paths)
    moved = Paths(paths.root.rename(paths.root.with_name("moved")))
    read.clear()
    assert read_report(moved) == FOUND and read == ["cache.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"op": "op", "cases": [\n{"x": 1}\n]}'])
def test_a_file_that_is_no_record_is_refused_each_time(paths: Paths, read: list[str], text: str) -> None:
    path_of(paths, WRONG).write_text(text)
    for _ in range(2):
        cache = ReadCache(paths)
        with pytest.raises(ValueError, match=r"not a verdict|Expecting"):
            cache.record(path_of(paths, WRONG))
        cache.save()
