"""Write the totals of the last report into README.md: `./run python -m docs.site.readme_counts`.

Run it after `./run doit torch=all ort=all`, which makes a report of the whole matrix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from opmatrix.basics.errors import ReportError
from opmatrix.basics.files import write_text
from opmatrix.basics.version import numbers
from opmatrix.project.paths import Paths
from opmatrix.report.report_json import Document, parse

ROOT = Path(__file__).parents[2]
# The program replaces the text between the two comments.
_BETWEEN = re.compile(r"(<!-- counted: [^>]* -->\n).*?(\n<!-- /counted -->)", re.DOTALL)


def sentence(report: Document) -> str:
    """Return the totals of a report: cells and outcomes, operators, torches, ONNX Runtimes.

    Raises ReportError for a report with a cell that is neither verified nor unsupported, or a check that failed.
    """
    counts, cells = report["counts"], report["cells"]
    if wrong := counts["cells"] - counts["verified"] - counts["unsupported"]:
        raise ReportError(f"{wrong} of {counts['cells']} cells are neither verified nor unsupported; mend them first")
    if wrong := report.get("check_counts", {}).get("failed"):  # a report of schema 3 has no checks
        raise ReportError(f"{wrong} of {report['check_counts']['checks']} checks failed; repair them first")
    runtimes, torches = _versions(c["ort"] for c in cells), _versions(c["torch"] for c in cells if c["torch"])
    return (
        f"**{counts['cells']:,} cells: {counts['verified']:,} verified, {counts['unsupported']:,} unsupported for a "
        f"stated reason, 0 failed**; {len({c['op'] for c in cells})} operators, {len(torches)} versions of torch "
        f"({', '.join(torches)}), {len(runtimes)} of ONNX Runtime ({', '.join(runtimes)})."
    )


def put(text: str, said: str) -> str:
    """Return a page with `said` between the comments. Raises ReportError for a page without them."""
    found, count = _BETWEEN.subn(lambda marks: f"{marks[1]}{said}{marks[2]}", text)
    if count != 1:
        raise ReportError(
            f"found {count} places '<!-- counted: ... -->' to '<!-- /counted -->' in the page, allowed: one"
        )
    return found


def _versions(found: Iterable[str]) -> list[str]:
    return sorted(set(found), key=numbers)


def main() -> None:
    """Update README.md. Raises ReportError for no report, a report with faults, and a page without the comments."""
    path, page = Paths(ROOT).report_data, ROOT / "README.md"
    report = parse(path.read_text()) if path.is_file() else None
    if report is None:
        raise ReportError(f"'{path}' is no report. Make it: ./run doit torch=all ort=all")
    said = sentence(report)
    write_text(page, put(page.read_text(), said))
    print(said)


if __name__ == "__main__":
    main()
