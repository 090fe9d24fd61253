"""What the report says about each cell, as data. An unknown cell is a failed one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, get_args

from opmatrix import verdict
from opmatrix.matrix.cells import EXPORTERS, Cell
from opmatrix.project.paths import Paths
from opmatrix.spec import Lowering
from opmatrix.verdict import WRONG, Outcome, Verdict, finite
from opmatrix.version import numbers

SCHEMA = 3
"""The version of report.json's schema, docs/report.md: raised when a reader of the old one would be misled."""

_LOWERINGS = get_args(Lowering)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def collect(layout: Paths, op: str, lowering: Lowering, cell: Cell) -> Verdict:
    """Return what is known about a cell. A verdict that is missing, unreadable or says nothing is a failed one."""
    unknown = Verdict(op=op, lowering=lowering, cell=cell, outcome="failed")
    try:
        found = verdict.read(layout.verdict(op, lowering, cell))
    except FileNotFoundError:
        return replace(unknown, detail="no verdict: nothing has verified this cell. Run: doit verify")
    except ValueError as error:
        return replace(unknown, detail=f"no verdict: {error}. Run: doit verify")
    if str(found) != str(unknown):
        detail = f"the file holds another verdict, {found}. {found.detail}".strip()
        return replace(found, op=op, lowering=lowering, cell=cell, outcome="failed", detail=detail)
    return checked(found)


def checked(found: Verdict) -> Verdict:
    """Return a verdict, failed if it proves nothing."""
    if problem := _problem(found):
        return replace(found, outcome="failed", detail=f"{problem}. {found.detail}".strip())
    return found


def _problem(found: Verdict) -> str:
    """Return why a verdict proves nothing, or nothing."""
    if found.outcome not in OUTCOMES:
        return f"unknown outcome {found.outcome!r}"
    if found.outcome == "unsupported" and not found.detail:
        return "unsupported, but no reason is given"
    if found.outcome == "verified" and not found.cases:
        return "verified, but no case was run"
    if found.outcome == "verified" and any(c.outcome in WRONG for c in found.cases):
        return "verified, but not all of its cases are"
    if found.outcome == "verified" and all(c.outcome == "unsupported" for c in found.cases):
        return "verified, but all of its cases are unsupported"
    if any(c.outcome == "unsupported" and not c.detail for c in found.cases):
        return "a case is unsupported, but no reason is given"
    return ""


def in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return verdicts in the order of a whole matrix, whichever of its cells were asked for."""
    return sorted(verdicts, key=_order)


def _order(found: Verdict) -> tuple[Any, ...]:
    cell = found.cell
    torch = (cell.torch is None, numbers(cell.torch) if cell.torch else ())  # what needs no torch comes last
    return (found.op, _LOWERINGS.index(found.lowering), torch, numbers(cell.ort), EXPORTERS.index(cell.exporter),
            cell.opset)  # fmt: skip


def counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Return how many cells there are, and how many of each outcome."""
    by_outcome = Counter(v.outcome for v in verdicts)
    return {"cells": len(verdicts)} | {outcome: by_outcome[outcome] for outcome in OUTCOMES}


def totals(verdicts: Sequence[Verdict]) -> str:
    """Return ``11 cells: 9 verified, 2 failed``."""
    found = counts(verdicts)
    cells = found.pop("cells")
    parts = [f"{count} {outcome}" for outcome, count in found.items() if count]
    return f"{cells} cell{'' if cells == 1 else 's'}: {', '.join(parts) or 'none asked for'}"


def as_json(found: Verdict) -> dict[str, Any]:
    """Return a verdict as report.json holds it; docs/report.md says what each key means."""
    cell = found.cell
    return {
        "op": found.op,
        "lowering": found.lowering,
        "torch": cell.torch,
        "exporter": cell.exporter,
        "opset": cell.opset,
        "ort": cell.ort,
        "outcome": found.outcome,
        "worst_error": finite(found.error),
        "worst_ulp": found.ulp,
        "worst_tolerance_used": finite(found.tolerance_used),
        "seconds": found.seconds,
        "detail": found.detail,
        "cases": [case.as_json() for case in found.cases],
    }
