"""Say what is known about every cell: in the terminal, as JSON, as JUnit XML, as Markdown, and as a page."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from pipeline.errors import ReportError
from pipeline.files import write_bytes, write_text
from pipeline.layout import Layout
from pipeline.matrix import Cell
from pipeline.project import installed
from pipeline.report import background, junit, markdown, page, table
from pipeline.report.changes import compare
from pipeline.report.document import Document, document, parse, same, text
from pipeline.report.records import collect
from pipeline.spec import Lowering


def run(layout: Layout, expected: Sequence[tuple[str, Lowering, Cell]]) -> None:
    """Write every file of the report, and print the table, for the `expected` cells.

    Raises ReportError unless each of them is verified, or unsupported for a reason.
    """
    records = [collect(layout, op, lowering, cell) for op, lowering, cell in expected]
    report = document(records, {"python": platform.python_version(), **asdict(installed())})
    if before := _previous(layout, report):
        report["changes"] = compare(report, before)
    data, xml, summary, html = layout.reports
    write_text(data, text(report))
    write_bytes(xml, junit.render([r.verdict for r in records]))
    write_text(summary, markdown.render(report, records))
    write_text(html, page.render(report, records, [background.read(layout, r) for r in records]))
    console = Console()
    table.show(records, console)
    console.print(str(html.relative_to(layout.root)), highlight=False, soft_wrap=True)
    if not records:
        raise ReportError("no cell was asked for: no operator in ops/ has an opset from its min_opset on")
    if wrong := sum(r.verdict.outcome not in ("verified", "unsupported") for r in records):
        path = data.relative_to(layout.root)
        raise ReportError(f"{wrong} of {len(records)} cells are neither verified nor unsupported; all of it in {path}")


def _previous(layout: Layout, report: Document) -> Document | None:
    """Return the report to compare `report` with, and keep it: the last one that tells of another run.

    A report that is made once more is compared with what it was compared with before.
    """
    last = _read(layout.report_data)
    if last is None or same(last, report):
        return _read(layout.previous_report)
    write_bytes(layout.previous_report, layout.report_data.read_bytes())
    return last


def _read(path: Path) -> Document | None:
    try:
        return parse(path.read_text())
    except (FileNotFoundError, UnicodeDecodeError):
        return None
