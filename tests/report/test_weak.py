"""A weak check is yellow in every output and in no exit code but that of `doit --strict`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from opmatrix.commands.run import _show_weak
from opmatrix.engine.tasks import StepTask
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.step import CheckKey, Step
from opmatrix.records.verdict import CheckRecord
from opmatrix.report import junit, markdown, terminal, write_report
from opmatrix.report import page as html_page
from opmatrix.report.read_cache import ReadCache
from opmatrix.report.records import collect_check, totals
from opmatrix.report.report_json import document
from tests.report.many import ENVIRONMENTS

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


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


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
