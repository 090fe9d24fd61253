"""The report in a terminal: what is wrong, then a table, what is unsupported, and the totals. The table has a row for
each operator and lowering, more only where something is wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmatrix.basics.errors import many, printable
from opmatrix.basics.terminal import in_any_cell
from opmatrix.basics.version import numbers
from opmatrix.project.cells import EXPORTERS
from opmatrix.records.verdict import WRONG, CheckRecord, Found, Outcome, Verdict, percent
from opmatrix.report.records import SHOWN, Shown, Skipped, compat_as_json, shown_outcome, totals, weak_checks

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
    errors = [v.cases.error for v in row if v.cases.error is not None]
    used = [v.cases.tolerance_used for v in row if v.cases.tolerance_used is not None]
    return f"{max(errors):.1e} {percent(max(used)):>4}" if errors and used else ""


WEAK = ("!", "!", "yellow")

ROW_MARKS: Mapping[str, tuple[str, str, str]] = {
    "works": MARKS["verified"], "refused": MARKS["unsupported"], "failed": MARKS["failed"],
}  # fmt: skip
"""The marks of what `doit compat` finds."""

_COMMANDS = ("Replay: ", "Debug: ")
_LINES = 40  # of a detail: a crash may leave pages, and report.json has all of them
_ALIKE = 12  # names of what is wrong for one reason: an environment that could not be made causes hundreds
_REASONS = 5  # why cells and cases are unsupported


def show(
    verdicts: Sequence[Verdict],
    console: Console,
    skipped: Sequence[Skipped] = (),
    checks: Sequence[CheckRecord] = (),
    *,
    ran: Collection[str] | None = None,
) -> None:
    """Print why cells and checks are wrong, the table, what is unsupported, which checks are weak, what a torch cannot
    check, and the totals. `ran`: the operators of which a step ran, None for all."""
    wrong = _alike(verdicts, checks)
    for alike in wrong:
        first, *others = alike
        if isinstance(first, CheckRecord) and first.check == "declaration":
            _show_declaration(first, console, whole=ran is None)
            continue
        outcome = shown_outcome(first)
        console.print(marked(MARKS[outcome], console, f" {outcome} {first}"), soft_wrap=True)
        if others:
            more = f" and {len(others) - _ALIKE} more" if len(others) > _ALIKE else ""
            named = ", ".join(map(str, others[:_ALIKE]))
            console.print(f"  also {named}{more}", highlight=False, soft_wrap=True)
        # Not wrapped: a command in it can be copied.
        console.print(Text(_indented(first.detail, first)), soft_wrap=True)
        console.print()
    for part in table(verdicts, console, ran=ran):
        console.print(part)
    if not wrong:
        for line in _unsupported([v for v in verdicts if ran is None or v.op in ran]):
            console.print(marked(MARKS["unsupported"], console, f" {printable(line)}"), soft_wrap=True)
    for found in weak_checks(checks):
        console.print(marked(WEAK, console, f" weak {found}"), soft_wrap=True)
        for why in found.weak:
            console.print(Text(printable(f"  {why}")), soft_wrap=True)
        console.print()
    for torch, of_torch in groupby(skipped, key=lambda s: s.torch):
        console.print(f"not checked in torch {torch}", highlight=False)
        for left_out in of_torch:
            console.print(Text(printable(f"  {left_out}")), soft_wrap=True)
        console.print()
    console.print(totals(verdicts, checks), highlight=False, soft_wrap=True)


def _show_declaration(record: CheckRecord, console: Console, *, whole: bool) -> None:
    """Print that an operator has no cells in this run, and its mistakes; one alone is also in the last lines of doit,
    so that it is left out here unless `whole`."""
    text = f" {record.op}: none of its cells is planned, because its declaration is wrong"
    console.print(marked(MARKS["failed"], console, text), highlight=False, soft_wrap=True)
    mistakes = [line for line in record.detail.splitlines() if not line.startswith(_COMMANDS)]
    if whole or len(mistakes) > 1:
        console.print(Text(_indented(record.detail, record)), soft_wrap=True)
    console.print()


def show_compat(records: Sequence[CheckRecord], console: Console) -> None:
    """Print what works in torch beyond eager mode: a row per operator and torch, then what is refused, and why."""
    for record in (r for r in records if r.check == "compat" and r.outcome == "unsupported"):
        told = f" {record.op} unsupported in torch {record.torch}: {record.detail}"
        console.print(marked(ROW_MARKS["refused"], console, told), soft_wrap=True)
    if not (found := compat_as_json(records)):
        return
    outcomes = [o for o in ROW_MARKS if any(row["outcome"] == o for one in found for row in one["rows"])]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("operator", no_wrap=True)
    made.add_column("torch")
    for outcome in outcomes:
        made.add_column(marked(ROW_MARKS[outcome], console, f" {outcome}"))
    for one in found:
        by_outcome: dict[str, list[str]] = {outcome: [] for outcome in outcomes}
        for row in one["rows"]:  # vmap for torch.vmap, grad for torch.func.grad
            by_outcome[row["outcome"]].append(row["name"].removeprefix("torch.").removeprefix("func."))
        made.add_row(one["op"], one["torch"], *map(", ".join, by_outcome.values()))
    console.print(made)
    for (name, outcome, detail), ops in compat_reasons(found).items():
        console.print(marked(ROW_MARKS[outcome], console, f" {name} {outcome} ({', '.join(ops)})"), soft_wrap=True)
        console.print(Text(printable(f"  {detail}")), soft_wrap=True)
    console.print()


def compat_reasons(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[str]]:
    """Return the operators of each row with a reason or a note: (name, outcome, reason)."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for one in records:
        for row in one["rows"]:
            if row["detail"]:
                ops = reasons.setdefault((row["name"], row["outcome"], row["detail"]), [])
                if one["op"] not in ops:
                    ops.append(one["op"])
    return reasons


def _alike(verdicts: Sequence[Verdict], checks: Sequence[CheckRecord]) -> list[list[Found]]:
    """Return what is wrong, grouped where only cells and values differ, or where one step's failure prevents it."""
    found: dict[tuple[str, ...], list[Found]] = {}
    wrong: list[Found] = [v for v in verdicts if v.outcome in WRONG]
    # The kernel with the cases of cases.py is last: the last lines of the run, which follow, name such a case.
    wrong += [c for kernel in (False, True) for c in checks if c.outcome in WRONG and (c.check == "kernel") is kernel]
    for one in wrong:
        what = one.check if isinstance(one, CheckRecord) else one.lowering
        key = ("", "") if one.blocked_by else (one.op, what)
        # The further lines of a cell say what its wrong cases have in common: cells have different cases.
        detail = one.detail.partition("\n")[0] if one.outcome == "mismatched" else one.detail
        found.setdefault((one.outcome, *key, in_any_cell(detail)), []).append(one)
    return [*found.values()]


def _unsupported(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield why cells, and cases of verified cells, are unsupported, the most frequent reasons first."""
    reasons: dict[tuple[str, str], list[tuple[str, str, Verdict]]] = {}  # by operator and wording
    for found in verdicts:
        unsupported = [("", found.detail)] if found.outcome == "unsupported" else []
        if found.outcome == "verified":
            unsupported = [(case.case, case.detail) for case in found.cases if case.outcome == "unsupported"]
        for case, reason in unsupported:
            key = f"{found.op}-{found.lowering}", in_any_cell(reason)
            reasons.setdefault(key, []).append((case, reason, found))
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    for (name, _), alike in ordered[:_REASONS]:
        cells = many(len({str(found) for *_, found in alike}), "cell")
        cases = {case for case, *_ in alike} - {""}
        # What torch or ONNX Runtime says is in parentheses behind the declared reason.
        reason = alike[0][1].partition("\n")[0].partition(" (")[0]
        what = f"{many(len(cases), 'case')} unsupported" if cases else "unsupported"
        yield f"{name}: {what} in {cells}: {reason}"
    if len(ordered) > _REASONS:
        yield f"{many(len(ordered) - _REASONS, 'more reason')} in the page"


def faults(verdicts: Sequence[Verdict], checks: Sequence[CheckRecord] = ()) -> dict[tuple[Outcome, str], list[Found]]:
    """Return what is not verified by outcome and detail: one compile error fails all cells of an operator. What a torch
    cannot check is listed as skipped."""
    by_detail: dict[tuple[Outcome, str], list[Found]] = {}
    listed: list[Found] = [v for v in verdicts if v.outcome != "verified"]
    for one in [*listed, *(c for c in checks if c.outcome in WRONG)]:
        by_detail.setdefault((one.outcome, one.detail), []).append(one)
    return by_detail


def replay(record: Found) -> str:
    """Return the command that repeats what is wrong, where `detail` does not have it."""
    if isinstance(record, CheckRecord):
        return record.replay
    wrong = next((c for c in record.cases if c.outcome != "verified"), None)
    return record.replay(wrong.case) if wrong else ""


def unsupported_cases(verdicts: Sequence[Verdict]) -> dict[str, list[str]]:
    """Return the details of unsupported cases in verified cells, by name: ``gelu-custom-plain_float64``."""
    details: dict[str, list[str]] = {}
    for verdict in (v for v in verdicts if v.outcome == "verified"):
        for case in verdict.cases:
            if case.outcome == "unsupported":
                details.setdefault(f"{verdict.op}-{verdict.lowering}-{case.case}", []).append(case.detail)
    return details


def _indented(detail: str, record: Found) -> str:
    lines = detail.splitlines()
    if len(lines) > _LINES:
        # The stack of a crash is long, and the commands that repeat it follow it.
        commands = [line for line in lines[_LINES:] if line.startswith(_COMMANDS)]
        lines = [*lines[:_LINES], f"({len(lines) - _LINES - len(commands)} more lines in report.json)", *commands]
    if command := replay(record):
        lines.append(f"Replay: {command}")
    return printable("\n".join(f"  {line}" for line in lines))
