"""The sentence of README.md that says how much is verified: made from a report, never by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pipeline.errors import ReportError
from pipeline.report.document import Document
from pipeline.version import numbers

# What stands between the two comments is written anew.
_PLACE = re.compile(r"(<!-- counted: [^>]* -->\n).*?(\n<!-- /counted -->)", re.DOTALL)


def sentence(report: Document) -> str:
    """Return what a report says in all: cells and outcomes, operators, torches, ONNX Runtimes.

    Raises ReportError for one with a cell that is neither verified nor unsupported: that is nothing to show.
    """
    counts, cells = report["counts"], report["cells"]
    if wrong := counts["cells"] - counts["verified"] - counts["unsupported"]:
        raise ReportError(f"{wrong} of {counts['cells']} cells are neither verified nor unsupported; mend them first")
    runtimes, torches = _versions(c["ort"] for c in cells), _versions(c["torch"] for c in cells if c["torch"])
    return (
        f"**{counts['cells']:,} cells: {counts['verified']:,} verified, {counts['unsupported']:,} unsupported for a "
        f"stated reason, 0 failed**; {len({c['op'] for c in cells})} operators, {len(torches)} versions of torch "
        f"({', '.join(torches)}), {len(runtimes)} of ONNX Runtime ({', '.join(runtimes)})."
    )


def put(text: str, said: str) -> str:
    """Return a page with `said` in its place. Raises ReportError where the page has no such place."""
    found, count = _PLACE.subn(lambda place: f"{place[1]}{said}{place[2]}", text)
    if count != 1:
        raise ReportError(
            f"found {count} places '<!-- counted: ... -->' to '<!-- /counted -->' in the page, allowed: one"
        )
    return found


def _versions(found: Iterable[str]) -> list[str]:
    return sorted(set(found), key=numbers)
