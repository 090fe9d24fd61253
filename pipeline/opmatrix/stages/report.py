"""Report the verdict of every cell: in the terminal, as JSON, JUnit XML, Markdown and an HTML page."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from opmatrix import verdict
from opmatrix.errors import ReportError
from opmatrix.files import write_bytes, write_text
from opmatrix.matrix.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.report import html_page, junit, logs_and_graphs, markdown, terminal
from opmatrix.report.changes import compare
from opmatrix.report.records import checked, collect, in_order, skipped_checks, totals
from opmatrix.report.report_json import Document, document, parse, same, text, used_environments
from opmatrix.verdict import WRONG, CellKey, Verdict

Exists = Callable[[str, str, Cell], bool]


def run(layout: Paths, expected: Sequence[CellKey], *, exists: Exists = lambda *_: True) -> None:
    """Write every file of the report, and print the table of the `expected` cells.

    The files also contain the valid verdicts of earlier runs in other cells, if `exists` returns True for them; they
    do not depend on which of these cells are expected. Raises ReportError unless each expected cell is verified, or
    unsupported with a reason.
    """
    asked = [collect(layout, *key) for key in expected]
    earlier = [v for v in _earlier(layout, {layout.verdict(*key) for key in expected}) if exists(*v.key)]
    verdicts = in_order([*asked, *earlier])
    skipped = skipped_checks(layout, verdicts)
    main = {"python": platform.python_version(), **asdict(installed())}
    report = document(verdicts, used_environments(layout, verdicts, main), skipped)
    if before := _previous(layout, report):
        report["changes"] = compare(report, before)
    data, xml, summary, html = layout.report_files
    write_text(data, text(report))
    write_bytes(xml, junit.render(verdicts))
    write_text(summary, markdown.render(report, verdicts, skipped))
    write_text(html, html_page.render(report, verdicts, [logs_and_graphs.read(layout, v) for v in verdicts]))
    console = Console()
    terminal.show(asked, console, skipped_checks(layout, asked))
    if earlier:
        console.print(f"beside them, of earlier runs: {totals(earlier)}", highlight=False)
    console.print(str(html.relative_to(layout.root)), highlight=False, soft_wrap=True)
    if not asked:
        if not any(layout.ops.glob("*/spec.py")):
            raise ReportError("no operator in ops/ yet, so there is nothing to verify; `doit new` writes one")
        raise ReportError(
            "no cell was asked for: no operator in ops/ can be used, or none has an opset from its min_opset on"
        )
    if wrong := sum(v.outcome in WRONG for v in asked):
        path = data.relative_to(layout.root)
        raise ReportError(f"{wrong} of {len(asked)} cells are neither verified nor unsupported; all of it in {path}")


def _earlier(layout: Paths, expected: Set[Path]) -> Iterator[Verdict]:
    """Yield the other verdicts, of earlier runs, that the engine found to be valid."""
    with suppress(FileNotFoundError):
        for path in map(Path, layout.verdict_list.read_text().splitlines()):
            if path not in expected:
                with suppress(FileNotFoundError, ValueError):  # removed or being written since the engine looked
                    yield checked(verdict.read(path))


def _previous(layout: Paths, report: Document) -> Document | None:
    """Return the report to compare `report` with, the last one of another run, and store `report`."""
    last = _read(layout.report_data)
    if last is None or same(last, report):
        return _read(layout.previous_report)
    write_bytes(layout.previous_report, layout.report_data.read_bytes())
    return last


def _read(path: Path) -> Document | None:
    with suppress(FileNotFoundError, UnicodeDecodeError):
        return parse(path.read_text())
    return None
