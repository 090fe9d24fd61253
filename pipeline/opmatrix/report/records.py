"""The records of report.json: the verdict of each cell. A cell without a valid verdict is a failed one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, get_args

from opmatrix import verdict
from opmatrix.errors import many
from opmatrix.matrix.cells import EXPORTERS, Cell
from opmatrix.project.paths import Paths
from opmatrix.spec import Lowering
from opmatrix.verdict import WRONG, Outcome, Verdict, finite
from opmatrix.version import numbers

SCHEMA = 3
"""The version of report.json's schema, docs/report.md: raised when a reader of the old one would misread it."""

_LOWERINGS = get_args(Lowering)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def collect(layout: Paths, op: str, lowering: Lowering, cell: Cell) -> Verdict:
    """Return the verdict of a cell; a failed one where it is missing, unreadable or not valid."""
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
    """Return a verdict, as a failed one if it is not valid."""
    if problem := _problem(found):
        return replace(found, outcome="failed", detail=f"{problem}. {found.detail}".strip())
    return found


def _problem(found: Verdict) -> str:
    """Return why a verdict is not valid, or ""."""
    if found.outcome not in OUTCOMES:
        return f"unknown outcome {found.outcome!r}"
    if found.outcome == "unsupported" and not found.detail:
        return "unsupported, but no reason is given"
    if found.outcome == "verified":
        if not found.cases:
            return "verified, but no case was run"
        if any(c.outcome in WRONG for c in found.cases):
            return "verified, but not all of its cases are"
        if all(c.outcome == "unsupported" for c in found.cases):
            return "verified, but all of its cases are unsupported"
    if any(c.outcome == "unsupported" and not c.detail for c in found.cases):
        return "a case is unsupported, but no reason is given"
    return ""


def in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return verdicts in the order of the whole matrix."""

    def order(found: Verdict) -> tuple[Any, ...]:
        cell = found.cell
        torch = (cell.torch is None, numbers(cell.torch) if cell.torch else ())  # cells without torch come last
        exporter = EXPORTERS.index(cell.exporter)
        return found.op, _LOWERINGS.index(found.lowering), torch, numbers(cell.ort), exporter, cell.opset

    return sorted(verdicts, key=order)


def counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Return how many cells there are, and how many of each outcome."""
    by_outcome = Counter(v.outcome for v in verdicts)
    return {"cells": len(verdicts)} | {outcome: by_outcome[outcome] for outcome in OUTCOMES}


def totals(verdicts: Sequence[Verdict]) -> str:
    """Return ``11 cells: 9 verified, 2 failed``."""
    found = counts(verdicts)
    parts = [f"{found[outcome]} {outcome}" for outcome in OUTCOMES if found[outcome]]
    return f"{many(len(verdicts), 'cell')}: {', '.join(parts) or 'none asked for'}"


def as_json(found: Verdict) -> dict[str, Any]:
    """Return a verdict as a record of report.json; docs/report.md describes each key."""
    return {
        "op": found.op,
        "lowering": found.lowering,
        **{key: getattr(found.cell, key) for key in ("torch", "exporter", "opset", "ort")},
        "outcome": found.outcome,
        "worst_error": finite(found.error),
        "worst_ulp": found.ulp,
        "worst_tolerance_used": finite(found.tolerance_used),
        "seconds": found.seconds,
        "detail": found.detail,
        "cases": [case.as_json() for case in found.cases],
    }
