"""What the report says about each cell, as data. An unknown cell is a failed one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from pipeline import verdict
from pipeline.layout import Layout
from pipeline.matrix import EXPORTERS, Cell
from pipeline.spec import Lowering
from pipeline.verdict import WRONG, Outcome, Verdict
from pipeline.version import numbers

SCHEMA = 2
"""The version of report.json's schema, docs/report.md: raised when a reader of the old one would be misled."""

_LOWERINGS = get_args(Lowering)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One verdict and its cell."""

    cell: Cell
    verdict: Verdict

    @property
    def error(self) -> float | None:
        """The largest absolute error, inf where no number says it."""
        found = [math.inf if c.error is None and c.outcome == "mismatched" else c.error for c in self.verdict.cases]
        return max((e for e in found if e is not None), default=None)

    @property
    def ulp(self) -> float | None:
        return max((c.ulp for c in self.verdict.cases if c.ulp is not None), default=None)

    @property
    def limit(self) -> float | None:
        """The largest share of a tolerance that was used up, inf where no number says it."""
        return max((c.used for c in self.verdict.cases if c.used is not None), default=None)


def finite(number: float | None) -> float | None:
    """Return a number that JSON can hold."""
    return number if number is not None and math.isfinite(number) else None


def collect(layout: Layout, op: str, lowering: Lowering, cell: Cell) -> Record:
    """Return what is known about a cell. A verdict that is missing, unreadable or says nothing is a failed one."""
    unknown = Verdict(op=op, lowering=lowering, cell=str(cell), outcome="failed")
    try:
        found = verdict.read(layout.verdict(op, lowering, cell))
    except FileNotFoundError:
        detail = "no verdict: nothing has verified this cell. Run: doit verify"
        return Record(cell=cell, verdict=replace(unknown, detail=detail))
    except ValueError as error:
        detail = f"no verdict: {error}. Run: doit verify"
        return Record(cell=cell, verdict=replace(unknown, detail=detail))
    if problem := _problem(found, unknown):
        found = replace(found, outcome="failed", detail=f"{problem}. {found.detail}".strip())
    return Record(cell=cell, verdict=found)


def _problem(found: Verdict, asked: Verdict) -> str:
    """Return why a verdict proves nothing, or nothing."""
    if str(found) != str(asked):
        return f"the file holds another verdict, {found}"
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


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return records in the order of a whole matrix, whichever of its cells were asked for."""
    return sorted(records, key=_order)


def _order(record: Record) -> tuple[Any, ...]:
    cell, found = record.cell, record.verdict
    torch = (cell.torch is None, numbers(cell.torch) if cell.torch else ())  # what needs no torch comes last
    return (found.op, _LOWERINGS.index(found.lowering), torch, numbers(cell.ort), EXPORTERS.index(cell.exporter),
            cell.opset)  # fmt: skip


def counts(records: Sequence[Record]) -> dict[str, int]:
    """Return how many cells there are, and how many of each outcome."""
    by_outcome = Counter(r.verdict.outcome for r in records)
    return {"cells": len(records)} | {outcome: by_outcome[outcome] for outcome in OUTCOMES}


def totals(records: Sequence[Record]) -> str:
    """Return ``11 cells: 9 verified, 2 failed``."""
    found = counts(records)
    cells = found.pop("cells")
    parts = [f"{count} {outcome}" for outcome, count in found.items() if count]
    return f"{cells} cell{'' if cells == 1 else 's'}: {', '.join(parts) or 'none asked for'}"


def as_json(record: Record) -> dict[str, Any]:
    """Return a record as report.json holds it; docs/report.md says what each key means."""
    cell, found = record.cell, record.verdict
    return {
        "op": found.op,
        "lowering": found.lowering,
        "torch": cell.torch,
        "exporter": cell.exporter,
        "opset": cell.opset,
        "ort": cell.ort,
        "outcome": found.outcome,
        "worst_error": finite(record.error),
        "worst_ulp": record.ulp,
        "worst_limit": finite(record.limit),
        "seconds": found.seconds,
        "detail": found.detail,
        "cases": [c.__dict__ for c in found.cases],
    }
