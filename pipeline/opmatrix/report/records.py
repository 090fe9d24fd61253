"""The records of report.json: the verdict of each cell, failed if none is valid, and the checks that were skipped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Checks that are skipped in one torch for one reason, and the operators that they are skipped for."""

    torch: str
    reason: str
    checks: tuple[str, ...]
    ops: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.checks)}: {self.reason} ({', '.join(self.ops)})"

    def as_json(self) -> dict[str, Any]:
        return {"torch": self.torch, "reason": self.reason, "checks": list(self.checks), "ops": list(self.ops)}


def skipped_checks(layout: Paths, verdicts: Iterable[Verdict]) -> tuple[Skipped, ...]:
    """Return the checks that were skipped in the torches of `verdicts`, oldest first. A missing or damaged manifest
    adds none: the step that writes it has failed, and doit reports that."""
    pairs = sorted({(v.cell.torch, v.op) for v in verdicts if v.cell.torch}, key=lambda p: (numbers(p[0]), p[1]))
    ops_of: dict[tuple[str, str, str], list[str]] = {}  # by torch, reason and check
    for torch, op in pairs:
        for check, reason in _skipped(layout.register_manifest(op, "*", torch=torch)):
            ops_of.setdefault((torch, reason, check), []).append(op)
    checks_of: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}  # by torch, reason and operators
    for (torch, reason, check), ops in ops_of.items():
        checks_of.setdefault((torch, reason, tuple(dict.fromkeys(ops))), []).append(check)
    return tuple(Skipped(torch=t, reason=r, checks=tuple(checks), ops=ops) for (t, r, ops), checks in checks_of.items())


def _skipped(manifests: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(manifests.parent.glob(manifests.name)):
        try:
            results = json.loads(path.read_text())["results"]
            yield from ((r["check"], r["skipped"].removeprefix("skipped: ")) for r in results if "skipped" in r)
        except (ValueError, KeyError, TypeError, OSError):
            continue
