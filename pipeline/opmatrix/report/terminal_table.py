"""The table of the report in a terminal: a row for each operator and lowering, more only where something is wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmatrix.errors import many
from opmatrix.matrix.cells import EXPORTERS
from opmatrix.report.records import SHOWN, Shown, shown_outcome
from opmatrix.verdict import WRONG, Verdict, percent
from opmatrix.version import numbers

MARKS: Mapping[Shown, tuple[str, str, str]] = {
    "verified": ("✓", "ok", "green"),
    "mismatched": ("≠", "!=", "red"),
    "failed": ("✗", "X", "red"),
    "unsupported": ("○", "n/a", "yellow"),
    "not run": ("⊘", "-", "yellow"),
}
"""A mark, since not all readers see colours, one for a terminal without Unicode, and the colour."""

_ROWS = 20  # of operators that are all right, and of wrong cells of one operator

Rows = dict[tuple[str, str], list[Verdict]]  # the verdicts of an operator's lowering


def marked(mark_of: tuple[str, str, str], console: Console, text: str) -> Text:
    """Return a text behind its mark."""
    mark, plain, colour = mark_of
    return Text.assemble((plain if console.options.ascii_only else mark, colour), text)


def table(
    verdicts: Sequence[Verdict], console: Console, *, ran: Collection[str] | None = None
) -> Iterator[Table | Text]:
    """Yield the table, and a line for the operators that are not in it: where something is wrong, all that are right;
    otherwise those of which nothing ran. `ran`: operators of which a step ran, None for all."""
    rows: Rows = {}
    for verdict in verdicts:
        rows.setdefault((verdict.op, verdict.lowering), []).append(verdict)
    wrong = {key: row for key, row in rows.items() if any(v.outcome in WRONG for v in row)}
    changed = {key: row for key, row in rows.items() if ran is None or key[0] in ran}
    shown = wrong or dict([*changed.items()][:_ROWS])
    if shown or not rows:
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=versions(verdicts), title_justify="left",
                     title_style="bold")  # fmt: skip
        made.add_column("operator", no_wrap=True)
        # In a narrow terminal these lines break, rather than vanish.
        made.add_column("exporter" if wrong else "cells", overflow="fold")
        made.add_column("opsets", overflow="fold")
        made.add_column("error, of limit", justify="right", overflow="fold")
        for (op, lowering), row in shown.items():
            for where, cells in _parts(row) if wrong else [("", row)]:
                outcomes = _outcomes(cells, console, opsets=bool(wrong))
                columns = (where, outcomes) if wrong else (outcomes, _ranges(cells))
                made.add_row(f"{op}-{lowering}", *columns, _worst(cells))
        yield made
    if rest := {key: row for key, row in rows.items() if key not in shown}:
        yield _line(rest, console, "other" if wrong else "more" if len(changed) > len(shown) else "unchanged")


def _line(rows: Rows, console: Console, which: str) -> Text:
    """Return ``✓ 7 unchanged operators: 60 cells verified, 2 unsupported``."""
    cells = [verdict for row in rows.values() for verdict in row]
    counts = [(sum(shown_outcome(v) == o for v in cells), o) for o in SHOWN]
    (first, outcome), *others = [(n, o) for n, o in counts if n]
    found = f"{many(first, 'cell')} {outcome}" + "".join(f", {n} {o}" for n, o in others)
    operators = len({op for op, _ in rows})
    return marked(MARKS["verified"], console, f" {many(operators, f'{which} operator')}: {found}")


def _parts(row: Sequence[Verdict]) -> Iterator[tuple[str, list[Verdict]]]:
    """Yield the wrong cells of an operator by torch, exporter and ONNX Runtime, then the others together."""

    def key(verdict: Verdict) -> tuple[Sequence[int], Sequence[int], int]:
        cell = verdict.cell
        return numbers(cell.torch or "0"), numbers(cell.ort), EXPORTERS.index(cell.exporter)

    several = len({(v.cell.torch, v.cell.ort) for v in row}) > 1
    parts = [[*part] for _, part in groupby(sorted(row, key=lambda v: (key(v), v.cell.opset)), key)]
    wrong = [part for part in parts if any(v.outcome in WRONG for v in part)]
    for part in wrong[:_ROWS]:
        cell = part[0].cell
        yield f"{cell.exporter_name} ort{cell.ort}" if several else cell.exporter, part
    if rest := [v for part in parts if part not in wrong[:_ROWS] for v in part]:
        yield "other cells", rest


def _outcomes(cells: Sequence[Verdict], console: Console, *, opsets: bool) -> Text:
    """Return the outcomes with how many cells have each, ``✓ 11``, or with `opsets` their opsets, ``≠ 9 12 15``."""
    lines = []
    for outcome in SHOWN:
        if found := [v.cell.opset for v in cells if shown_outcome(v) == outcome]:
            numbered = " ".join(map(str, sorted(set(found)))) if opsets else str(len(found))
            lines.append(marked(MARKS[outcome], console, f" {numbered}"))
    return Text("\n" if opsets else " ").join(lines)


def _ranges(cells: Sequence[Verdict]) -> str:
    """Return the lowest and the highest opset of each exporter: ``legacy 9-20, dynamo 18-25``."""
    found = []
    for exporter in EXPORTERS:
        if opsets := {v.cell.opset for v in cells if v.cell.exporter == exporter}:
            ends = dict.fromkeys((min(opsets), max(opsets)))
            found.append(f"{exporter} {'-'.join(map(str, ends))}")
    return ", ".join(found)


def versions(verdicts: Iterable[Verdict]) -> str | None:
    """Return the versions of torch and ONNX Runtime of cells, ``torch 2.13, ONNX Runtime 1.16 to 1.31``."""
    found = []
    for name, given in (
        ("torch", {v.cell.torch for v in verdicts if v.cell.torch}),
        ("ONNX Runtime", {v.cell.ort for v in verdicts}),
    ):
        if ordered := sorted(given, key=numbers):
            found.append(f"{name} {' to '.join(dict.fromkeys((ordered[0], ordered[-1])))}")
    return ", ".join(found) or None


def _worst(row: Sequence[Verdict]) -> str:
    """Return the largest error and the largest `tolerance_used`, which may be of different cases."""
    errors = [v.error for v in row if v.error is not None]
    used = [v.tolerance_used for v in row if v.tolerance_used is not None]
    return f"{max(errors):.1e} {percent(max(used)):>4}" if errors and used else ""
