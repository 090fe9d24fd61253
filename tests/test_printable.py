"""Names and output from a model, a schema or a process are printed with escaped control characters, and shortened. The
terminal of tests shows what a real one shows. Each text file is read and written in an encoding that the code names,
wherever ruff infers no type for PLW1514.
"""

from __future__ import annotations

import ast
import io
import select
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
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
from tests.incremental.conftest import wait_for
from tests.support import screen
from tests.support.raising import raising

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


def test_errors_of_stages_and_of_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`doit new --from-onnx` names operators of the model in its errors."""
    monkeypatch.setattr(stages, "run_stage", raising(UsageError(EVIL)))
    assert stages.main([]) == 2
    monkeypatch.setattr("doit.cmd_base.Command.parse_execute", raising(UsageError(EVIL)))
    assert CommandBase.parse_execute(object.__new__(CommandBase), []) == 2
    assert capsys.readouterr().err == f"{SHOWN}\n" * 2


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


def test_the_report_in_a_terminal_and_the_summary() -> None:
    cell = Cell(torch="2.13", exporter="dynamo", opset=18, ort="1.31")
    case = CaseResult(case="one", model="m", outcome="failed", detail=EVIL)
    found = [Verdict(op="op", lowering="custom", cell=cell, outcome="failed", detail=EVIL, cases=(case,))]
    stream = io.StringIO()
    terminal.show(found, Console(file=stream, width=80))
    environments: Mapping[str, Any] = {"main": {"torch": "2.13"}}
    for text in (stream.getvalue(), markdown.render(document(found, environments), found)):
        assert SHOWN in text and "\x1b" not in text and "\u202e" not in text


def test_the_last_screen_and_what_scrolled_off(tmp_path: Path) -> None:
    seen = screen.run(["sh", "-c", "seq 1 100; exit 3"], cwd=tmp_path)
    assert seen.code == 3
    assert seen.screen == (*map(str, range(78, 101)), ""), "the cursor is in the last line"
    assert seen.lines == tuple(map(str, range(1, 101)))
    assert seen.first("^42$") == 42


def test_the_terminal_wraps_a_long_line_and_writes_over_one(tmp_path: Path) -> None:
    seen = screen.run(["sh", "-c", f"printf '\\033[31m{'x' * 100}\\033[0m\\n'; tput cols"], cwd=tmp_path)
    assert seen.lines == ("x" * 80, "x" * 20, "80")
    assert seen.text.splitlines()[0] == "x" * 100
    assert screen.run(["sh", "-c", "printf 'progress\\r\\033[2Kdone\\n'"], cwd=tmp_path).lines == ("done",)


def test_a_command_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def select_later(*arguments: Any) -> Any:
        wait_for((tmp_path / "printed").exists)
        return select.select(*arguments)

    monkeypatch.setattr(screen, "select", SimpleNamespace(select=select_later))
    with pytest.raises(TimeoutError, match="it printed:\nhello"):
        screen.run(["sh", "-c", "echo hello; touch printed; sleep 1000"], cwd=tmp_path, seconds=0.1)


PIPELINE = Path(__file__).parents[1] / "pipeline"
# The place of the mode among the arguments, by the function; other functions of these modules open no text.
MODES = {"open": 1, "os.fdopen": 1, "io.open": 1, ".open": 0, ".read_text": None, ".write_text": None}
OTHERS = ("os.", "tarfile.", "zipfile.", "webbrowser.")


def without_encoding(source: str) -> Iterator[int]:
    """Yield the lines of a source that open a text file in the encoding of the locale."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or {"encoding", None} & {k.arg for k in call.keywords}:
            continue
        called = ast.unparse(call.func)
        name = called if called in MODES else "" if called.startswith(OTHERS) else f".{called.rpartition('.')[2]}"
        if name not in MODES or (name != called and "." not in called):
            continue
        place = MODES[name]
        given = [k.value for k in call.keywords if k.arg == "mode"] + call.args[place:][:1] if place is not None else []
        if not (given and isinstance(given[0], ast.Constant) and "b" in str(given[0].value)):
            yield call.lineno


@pytest.mark.parametrize("path", sorted(PIPELINE.rglob("*.py")), ids=lambda path: str(path.relative_to(PIPELINE)))
def test_each_text_file_has_an_encoding(path: Path) -> None:
    found = [*without_encoding(path.read_text(encoding="utf-8"))]
    assert not found, f'{path}: lines {found}: add encoding="utf-8"'


FOUND = [
    "path.read_text()", "(a / 'b').read_text(errors='replace')", "path.write_text(text)", "path.open()",
    "path.open('a')", "path.open(mode='w')", "open(name)", "open(name, 'w')", "open(name, mode)", "os.fdopen(1, 'w')",
    "f(x).y.open(buffering=1)",
]  # fmt: skip
NOT = [
    "path.read_text(encoding='utf-8')", "path.read_bytes()", "path.open('rb')", "path.open(mode='wb')",
    "open(name, 'rb')", "open(name, encoding='ascii')", "os.open(name, 0)", "os.fdopen(0, 'rb')",
    "tarfile.open(name)", "path.write_text(text, **options)", "write_text(path, text)",
]  # fmt: skip


@pytest.mark.parametrize("call", [*FOUND, *NOT])
def test_what_the_check_finds(call: str) -> None:
    assert [*without_encoding(f"x = 1\n{call}")] == ([2] if call in FOUND else [])
