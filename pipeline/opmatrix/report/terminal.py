"""The report in a terminal: what is wrong, then a table, what is unsupported, and the totals."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmatrix.errors import many, printable
from opmatrix.report.records import Skipped, compat_as_json, shown_outcome, totals, weak_checks
from opmatrix.report.terminal_table import MARKS, marked, table
from opmatrix.terminal_text import in_any_cell
from opmatrix.verdict import WRONG, CheckRecord, Found, Outcome, Verdict

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


def _show_declaration(found: CheckRecord, console: Console, *, whole: bool) -> None:
    """Print that an operator has no cells in this run, and its mistakes; one alone is also in the last lines of doit,
    so that it is left out here unless `whole`."""
    text = f" {found.op}: none of its cells is planned, because its declaration is wrong"
    console.print(marked(MARKS["failed"], console, text), highlight=False, soft_wrap=True)
    mistakes = [line for line in found.detail.splitlines() if not line.startswith(_COMMANDS)]
    if whole or len(mistakes) > 1:
        console.print(Text(_indented(found.detail, found)), soft_wrap=True)
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
        names = {o: [_short(row["name"]) for row in one["rows"] if row["outcome"] == o] for o in outcomes}
        made.add_row(one["op"], one["torch"], *(", ".join(names[outcome]) for outcome in outcomes))
    console.print(made)
    for (name, outcome, detail), ops in compat_reasons(found).items():
        console.print(marked(ROW_MARKS[outcome], console, f" {name} {outcome} ({', '.join(ops)})"), soft_wrap=True)
        console.print(Text(printable(f"  {detail}")), soft_wrap=True)
    console.print()


def _short(name: str) -> str:
    """Return ``vmap`` for ``torch.vmap``, ``grad`` for ``torch.func.grad``."""
    return name.removeprefix("torch.").removeprefix("func.")


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
