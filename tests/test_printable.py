"""Names and output from a model, a schema or a process are printed with escaped control characters, and shortened."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from opmatrix.addons.check.print_findings import FindingPrinter
from opmatrix.basics import finding
from opmatrix.basics.errors import LONGEST_LINE, UsageError, printable
from opmatrix.commands import stages
from opmatrix.commands.base import CommandBase
from opmatrix.engine.progress_reporter import Progress
from opmatrix.engine.step_failure import StepFailed
from opmatrix.engine.tasks import StepTask
from opmatrix.project.cells import Cell
from opmatrix.records.step import Step
from opmatrix.records.verdict import CaseResult, Verdict
from opmatrix.report import markdown, terminal
from opmatrix.report.report_json import document

EVIL = "Evil\x1b]0;pwned\x07\x1b[2J\u202e\x9b2K"
SHOWN = r"Evil\x1b]0;pwned\x07\x1b[2J\u202e\x9b2K"
COLOURED = "\x1b[01m\x1b[Kkernel.h:1\x1b[m\x1b[K: \x1b[38;5;1merror\x1b[0m"
LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EVIL, SHOWN),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", r"\x1b]8;;http://evil\x1b\link\x1b]8;;\x1b" + "\\"),
        ("\u2066\u200b\u2028\udc80\ufeff", r"\u2066\u200b\u2028\udc80\ufeff"),
        ("1%\r100%\b\v", r"1%\r100%\x08\x0b"),
        ("a\tb\n  ✗ ≠ ä € 漢 \N{PARTY POPPER}", "a\tb\n  ✗ ≠ ä € 漢 \N{PARTY POPPER}"),
        (SHOWN, SHOWN),
        ("\x1b[1mbold\x1b[0m", r"\x1b[1mbold\x1b[0m"),
    ],
)
def test_control_characters_are_escapes(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_a_long_line_is_shown_without_its_middle() -> None:
    first, second = printable(f"begin{LONG}end\nshort").split("\n")
    assert first.startswith("beginx") and " ... " in first and first.endswith("xend") and len(first) < LONGEST_LINE + 9
    assert second == "short"


def test_colours_stay_where_they_are_shown_and_end_with_their_line() -> None:
    assert printable(COLOURED, colours=True) == f"{COLOURED}\x1b[0m"
    assert printable("\x1b[31mred\n\x1b[2J\x1b[1K", colours=True) == "\x1b[31mred\x1b[0m\n\\x1b[2J\\x1b[1K"


def test_findings() -> None:
    stream = io.StringIO()
    printer = FindingPrinter(stream)
    printer.print_titled(EVIL, [finding.wrong("nodes", f"evil::{EVIL}", remedy=LONG)])
    printer.print_outcome(EVIL, "wrong", EVIL)
    assert stream.getvalue().count(SHOWN) == 4 and stream.getvalue().isascii() is False
    assert "\x1b" not in stream.getvalue() and len(stream.getvalue()) < LONGEST_LINE + 900


def test_errors_of_stages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(arguments: object) -> None:
        raise UsageError(EVIL)

    monkeypatch.setattr(stages, "run_stage", fail)
    assert stages.main([]) == 2
    assert capsys.readouterr().err == f"{SHOWN}\n"


def test_errors_of_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`doit new --from-onnx` names operators of the model in its errors."""

    def fail(command: object, arguments: object) -> None:
        raise UsageError(EVIL)

    monkeypatch.setattr("doit.cmd_base.Command.parse_execute", fail)
    assert CommandBase.parse_execute(object.__new__(CommandBase), []) == 2
    assert capsys.readouterr().err == f"{SHOWN}\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "coloured"), [(io.StringIO, False), (Terminal, True)])
def test_a_failed_step(
    stream: type[io.StringIO], coloured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "dumb")  # without the line of rich
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    written = stream()
    reporter = Progress(written, {"failure_verbosity": 0, "show_out": True})
    step = Step(group="compile", name="my_op", command=("compile", "my_op"))
    reporter.add_failure(StepTask(step), StepFailed(step, summary=EVIL, output=f"{COLOURED}\n{EVIL}"))
    reporter.complete_run()
    text = written.getvalue()
    assert text.count(SHOWN) == 1, text
    assert (COLOURED in text) is coloured
    assert ("\x1b" in text) is coloured


CELL = Cell(torch="2.13", exporter="dynamo", opset=18, ort="1.31")


def failed(detail: str) -> Verdict:
    case = CaseResult(case="one", model="m", outcome="failed", detail=detail)
    return Verdict(op="op", lowering="custom", cell=CELL, outcome="failed", detail=detail, cases=(case,))


def test_the_report_in_a_terminal() -> None:
    stream = io.StringIO()
    terminal.show([failed(EVIL)], Console(file=stream, width=80))
    assert SHOWN in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_the_summary() -> None:
    environments: Mapping[str, Any] = {"main": {"torch": "2.13"}}
    found = [failed(EVIL)]
    text = markdown.render(document(found, environments), found)
    assert SHOWN in text and "\x1b" not in text and "\u202e" not in text
