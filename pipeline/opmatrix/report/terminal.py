"""The report in a terminal: a row per operator, lowering and exporter, then what is not verified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmatrix.errors import printable
from opmatrix.matrix.cells import EXPORTERS
from opmatrix.report.records import OUTCOMES, Skipped, compat_as_json, totals, weak_checks
from opmatrix.verdict import WRONG, CheckRecord, Found, Outcome, Verdict, percent

MARKS: Mapping[Outcome, tuple[str, str, str]] = {
    "verified": ("✓", "ok", "green"),
    "mismatched": ("≠", "!=", "red"),
    "failed": ("✗", "X", "red"),
    "unsupported": ("○", "n/a", "yellow"),
}
"""A mark, since not all readers see colours, one for a terminal without Unicode, and the colour."""
WEAK = ("!", "!", "yellow")

ROW_MARKS: Mapping[str, tuple[str, str, str]] = {
    "works": MARKS["verified"], "refused": MARKS["unsupported"], "failed": MARKS["failed"],
}  # fmt: skip
"""The marks of what `doit compat` finds."""

_ALIKE = 12  # names of verdicts with one detail: an environment that could not be made causes hundreds
_COMMANDS = ("Replay: ", "Debug: ")
_LINES = 8  # of a detail: a crash may leave pages, and report.json has all of them


def show(
    verdicts: Sequence[Verdict],
    console: Console,
    skipped: Sequence[Skipped] = (),
    checks: Sequence[CheckRecord] = (),
) -> None:
    """Print the table, why cells and checks are not verified, which checks are weak, what a torch cannot check, and the
    totals."""
    console.print()
    console.print(_table(verdicts, console))
    for (outcome, detail), alike in faults(verdicts, checks).items():
        for found in alike[:_ALIKE]:
            console.print(_mark(outcome, console, f" {outcome} {found}"), soft_wrap=True)
        if len(alike) > _ALIKE:
            console.print(f"  and {len(alike) - _ALIKE} more", highlight=False)
        # Not wrapped: a command in it can be copied.
        console.print(Text(_indented(detail, alike[0])), soft_wrap=True)
        console.print()
    for name, details in unsupported_cases(verdicts).items():
        cells = "in one cell" if len(details) == 1 else f"in {len(details)} cells"
        console.print(_mark("unsupported", console, f" unsupported {name} {cells}"), soft_wrap=True)
        console.print(Text(printable(f"  {details[0]}\n")), soft_wrap=True)
    for found in weak_checks(checks):
        console.print(_marked(WEAK, console, f" weak {found}"), soft_wrap=True)
        for why in found.weak:
            console.print(Text(printable(f"  {why}")), soft_wrap=True)
        console.print()
    for torch, of_torch in groupby(skipped, key=lambda s: s.torch):
        console.print(f"not checked in torch {torch}", highlight=False)
        for left_out in of_torch:
            console.print(Text(printable(f"  {left_out}")), soft_wrap=True)
        console.print()
    console.print(totals(verdicts, checks), highlight=False, soft_wrap=True)


def show_compat(records: Sequence[CheckRecord], console: Console) -> None:
    """Print what works in torch beyond eager mode: a row per operator and torch, then what is refused, and why."""
    for record in (r for r in records if r.check == "compat" and r.outcome == "unsupported"):
        told = f" {record.op} unsupported in torch {record.torch}: {record.detail}"
        console.print(_marked(ROW_MARKS["refused"], console, told), soft_wrap=True)
    if not (found := compat_as_json(records)):
        return
    names = list(dict.fromkeys(row["name"] for one in found for row in one["rows"]))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operator", no_wrap=True)
    for name in ["torch", *names]:
        table.add_column(name.removeprefix("torch.").removeprefix("func."), overflow="fold")
    for one in found:
        marks = {row["name"]: _marked(ROW_MARKS[row["outcome"]], console, "") for row in one["rows"]}
        table.add_row(one["op"], one["torch"], *(marks.get(name, "") for name in names))
    console.print(table)
    for (name, outcome, detail), ops in compat_reasons(found).items():
        console.print(_marked(ROW_MARKS[outcome], console, f" {name} {outcome} ({', '.join(ops)})"), soft_wrap=True)
        console.print(Text(printable(f"  {detail}")), soft_wrap=True)
    console.print()


def compat_reasons(found: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[str]]:
    """Return the operators of each row with a reason or a note: (name, outcome, reason)."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        for row in one["rows"]:
            if row["detail"]:
                ops = reasons.setdefault((row["name"], row["outcome"], row["detail"]), [])
                if one["op"] not in ops:
                    ops.append(one["op"])
    return reasons


def _table(verdicts: Sequence[Verdict], console: Console) -> Table:
    shared = _versions(verdicts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=shared, title_justify="left", title_style="bold")
    table.add_column("operator", no_wrap=True)
    table.add_column("exporter", overflow="fold")
    table.add_column("opsets", min_width=16)
    table.add_column("error, of limit", justify="right", no_wrap=True)
    for row in _rows(verdicts):
        cell, found = row[0].cell, row[0]
        exporter = cell.exporter if shared else f"{cell.exporter_name} ort{cell.ort}"
        table.add_row(f"{found.op}-{found.lowering}", exporter, _opsets(row, console), _worst(row))
    return table


def _versions(verdicts: Sequence[Verdict]) -> str | None:
    """Return the versions that all cells share, or None where they differ and each row names its own."""
    torch = {v.cell.torch for v in verdicts} - {None}
    ort = {v.cell.ort for v in verdicts}
    if len(torch) > 1 or len(ort) != 1:
        return None
    return ", ".join([*(f"torch {version}" for version in torch if version), f"ONNX Runtime {ort.pop()}"])


def _rows(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    def key(v: Verdict) -> tuple[str, str, str, str, int]:
        torch = v.cell.torch or "without, and so behind every version"
        return (v.op, v.lowering, torch, v.cell.ort, EXPORTERS.index(v.cell.exporter))

    return [list(row) for _, row in groupby(sorted(verdicts, key=lambda v: (key(v), v.cell.opset)), key)]


def _opsets(row: Sequence[Verdict], console: Console) -> Text:
    """Return a line with the opsets of each outcome: ``✓ 9 12 15``, then ``✗ 17``."""
    opsets = {o: [str(v.cell.opset) for v in row if v.outcome == o] for o in OUTCOMES}
    return Text("\n").join(_mark(o, console, " ".join(["", *numbers])) for o, numbers in opsets.items() if numbers)


def _mark(outcome: Outcome, console: Console, text: str) -> Text:
    return _marked(MARKS[outcome], console, text)


def _marked(mark_of: tuple[str, str, str], console: Console, text: str) -> Text:
    mark, plain, colour = mark_of
    return Text.assemble((plain if console.options.ascii_only else mark, colour), text)


def _worst(row: Sequence[Verdict]) -> str:
    """Return the largest error and the largest `tolerance_used`, which may be of different cases."""
    errors = [v.error for v in row if v.error is not None]
    used = [v.tolerance_used for v in row if v.tolerance_used is not None]
    return f"{max(errors):.1e} {percent(max(used)):>4}" if errors and used else ""


def faults(verdicts: Sequence[Verdict], checks: Sequence[CheckRecord] = ()) -> dict[tuple[Outcome, str], list[Found]]:
    """Return what is not verified by outcome and detail: one compile error fails all cells of an operator. What a torch
    cannot check is listed as skipped."""
    found: dict[tuple[Outcome, str], list[Found]] = {}
    listed: list[Found] = [v for v in verdicts if v.outcome != "verified"]
    listed += [c for c in checks if c.outcome in WRONG]
    for one in listed:
        found.setdefault((one.outcome, one.detail), []).append(one)
    return found


def replay(found: Found) -> str:
    """Return the command that repeats what is wrong, where `detail` does not have it."""
    if isinstance(found, CheckRecord):
        return found.replay
    wrong = next((c for c in found.cases if c.outcome != "verified"), None)
    return found.replay(wrong.case) if wrong else ""


def unsupported_cases(verdicts: Sequence[Verdict]) -> dict[str, list[str]]:
    """Return the details of unsupported cases in verified cells, by name: ``gelu-custom-plain_float64``."""
    found: dict[str, list[str]] = {}
    for verdict in (v for v in verdicts if v.outcome == "verified"):
        for case in verdict.cases:
            if case.outcome == "unsupported":
                found.setdefault(f"{verdict.op}-{verdict.lowering}-{case.case}", []).append(case.detail)
    return found


def _indented(detail: str, found: Found) -> str:
    lines = detail.splitlines()
    if len(lines) > _LINES:
        # The stack of a crash is long, and the commands that repeat it follow it.
        commands = [line for line in lines[_LINES:] if line.startswith(_COMMANDS)]
        lines = [*lines[:_LINES], f"({len(lines) - _LINES - len(commands)} more lines in report.json)", *commands]
    if command := replay(found):
        lines.append(f"Replay: {command}")
    return printable("\n".join(f"  {line}" for line in lines))
