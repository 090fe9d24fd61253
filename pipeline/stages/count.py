"""Write into README.md how much the last report says is verified."""

from __future__ import annotations

from pipeline.errors import ReportError, missing
from pipeline.files import write_text
from pipeline.layout import Layout
from pipeline.report import counted
from pipeline.report.document import parse


def run(layout: Layout) -> None:
    """Raises ReportError where there is no report, one with faults, or no place for it in the page."""
    path, page = layout.report / "report.json", layout.root / "README.md"
    report = parse(path.read_text()) if path.is_file() else None
    if report is None:
        raise ReportError(missing(path, run="./run doit torch=all ort=all", problem="is no report"))
    said = counted.sentence(report)
    write_text(page, counted.put(page.read_text(), said))
    print(said)
