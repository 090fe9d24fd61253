"""The records of report.json: of each cell and each check, failed if none is valid, and what was not checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, get_args

from opmatrix.basics.errors import many
from opmatrix.basics.terminal import for_shell, in_checkout
from opmatrix.basics.version import numbers
from opmatrix.project.cells import EXPORTERS, Cell
from opmatrix.records.step import CheckKey
from opmatrix.records.verdict import WRONG, AnyFound, Cases, CheckRecord, Found, Outcome, Verdict, of_type
from opmatrix.report.read_cache import ReadCache
from opmatrix.spec import Lowering

SCHEMA = 5
"""The version of report.json's schema, docs/report.md: raised when a reader of the old one would misread it."""

_LOWERINGS = get_args(Lowering)
# In the order of the report; others, such as a step's own failure, come first.
_CHECKS = (
    *("declaration", "cases", "draw-inputs", "schema", "nodes", "kernel", "search", "forbidden", "gradient"),
    *("agreement", "compat"),
)


@dataclass(frozen=True, kw_only=True)
class ReportedPart:
    """The part of a run that a report is about: shard `number` of `of`. `cells` and `checks` count those of all shards;
    `elsewhere`: the checks that are not in it."""

    number: int
    of: int
    cells: int
    checks: int
    elsewhere: frozenset[CheckKey] = frozenset()

    def __str__(self) -> str:
        return f"shard {self.number} of {self.of}"


OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Shown = Outcome | Literal["not run"]
SHOWN: tuple[Shown, ...] = (*OUTCOMES, "not run")
"""The outcomes that readers see, in their order."""


def collect(cache: ReadCache, op: str, lowering: Lowering, cell: Cell) -> Verdict:
    """Return the verdict of a cell; a failed one where it is missing, unreadable or not valid."""
    unknown = Verdict(op=op, lowering=lowering, cell=cell, outcome="failed")
    path = cache.paths.verdict(op, lowering, cell)
    found = _read(cache, path, unknown, "verdict", "nothing has verified this cell", "doit verify")
    if found.key == unknown.key:
        return checked(found)
    detail = f"the file contains another verdict, {found}. {found.detail}".strip()
    return replace(found, op=op, lowering=lowering, cell=cell, outcome="failed", detail=detail)


def collect_check(cache: ReadCache, key: CheckKey) -> CheckRecord:
    """Return the record of a check; a failed one where it is missing, unreadable or not valid."""
    unknown = CheckRecord(**key._asdict(), outcome="failed")
    found = _read(cache, cache.paths.check_record(*key), unknown, "record", "nothing has run this check", "doit")
    if found.key == key:
        return checked(found)
    return replace(unknown, detail=f"the file contains another record, {found}. {found.detail}".strip())


def _read(cache: ReadCache, path: Path, unknown: AnyFound, noun: str, why: str, command: str) -> AnyFound:
    """Return the record in a file, or `unknown` with the reason why there is none of its type."""
    try:
        return of_type(type(unknown), cache.record(path), path)
    except FileNotFoundError:
        pass
    except ValueError as error:
        why = str(error)
    return replace(unknown, detail=f"no {noun}: {why}. Run: {command}")


def checked(record: AnyFound) -> AnyFound:
    """Return a record, as a failed one if it is not valid."""
    problem, verified = "", record.outcome == "verified"
    if record.outcome not in OUTCOMES:
        problem = f"unknown outcome {record.outcome!r}"
    elif record.outcome == "unsupported" and not record.detail:
        problem = "unsupported, but no reason is given"
    elif isinstance(record, CheckRecord):
        problem = "verified, but nothing was checked" if verified and record.torch and not record.results else ""
    elif verified and not record.cases:
        problem = "verified, but no case was run"
    elif verified and record.cases.outcomes.intersection(WRONG):
        problem = "verified, but not all of its cases are"
    elif verified and record.cases.outcomes == {"unsupported"}:
        problem = "verified, but all of its cases are unsupported"
    elif any(not c.detail for c in record.cases.of("unsupported")):
        problem = "a case is unsupported, but no reason is given"
    return replace(record, outcome="failed", detail=f"{problem}. {record.detail}".strip()) if problem else record


def pasteable(records: Iterable[AnyFound], root: Path) -> list[AnyFound]:
    """Return records whose messages have commands as they run in the project's root."""
    change = partial(for_shell, root=root)

    @cache  # cells share their cases
    def of_cases(cases: Cases) -> Cases:
        changed = any(case.detail for case in cases)
        return Cases(replace(c, detail=change(c.detail)) for c in cases) if changed else cases

    def of(record: AnyFound) -> AnyFound:
        more: dict[str, Any] = {"detail": change(record.detail)} if record.detail else {}
        if isinstance(record, CheckRecord):
            more |= {"weak": tuple(map(change, record.weak))} if record.weak else {}
        elif (cases := of_cases(record.cases)) is not record.cases:
            more["cases"] = cases
        return replace(record, **more) if more else record

    return [of(record) for record in records] if in_checkout(root) else list(records)


def in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return verdicts in the order of the whole matrix."""

    def order(verdict: Verdict) -> tuple[Any, ...]:
        cell = verdict.cell
        torch = (cell.torch is None, numbers(cell.torch) if cell.torch else ())  # cells without torch come last
        exporter = EXPORTERS.index(cell.exporter)
        return verdict.op, _LOWERINGS.index(verdict.lowering), torch, numbers(cell.ort), exporter, cell.opset

    return sorted(verdicts, key=order)


def checks_in_order(checks: Iterable[CheckRecord]) -> list[CheckRecord]:
    """Return records by operator and by check, those of the oldest torch first."""

    def order(record: CheckRecord) -> tuple[Any, ...]:
        check = _CHECKS.index(record.check) if record.check in _CHECKS else -1
        torches = [numbers(torch) for torch in (record.torch or "").split("+") if torch]
        return record.op, check, record.check, record.lowering or "", torches

    return sorted(checks, key=order)


def counts(records: Sequence[Found], name: str = "cells") -> dict[str, int]:
    """Return how many records there are, as `name`, and how many of each outcome."""
    by_outcome = Counter(record.outcome for record in records)
    return {name: len(records)} | {outcome: by_outcome[outcome] for outcome in OUTCOMES}


def weak_checks(checks: Iterable[CheckRecord]) -> list[CheckRecord]:
    """Return the checks that are verified and prove little, which `doit --strict` refuses."""
    return [record for record in checks if record.weak and record.outcome == "verified"]


def shown_outcome(record: Found) -> Shown:
    """Return the outcome of a record for readers: "not run" where a failed step prevents it that is not its own, as the
    export of a cell is, and where the shared cache has no result."""
    if record.outcome != "failed" or not record.blocked_by:
        return record.outcome
    return "not run" if record.blocked_by.missing or record.blocked_by.group != "export" else "failed"


def totals(verdicts: Sequence[Verdict], checks: Sequence[CheckRecord] = ()) -> str:
    """Return ``11 cells: 9 verified, 2 not run``, and if there are checks ``; 5 checks: 4 verified, 1 failed``."""
    kinds: list[tuple[str, Sequence[Found]]] = [("cell", verdicts), *([("check", checks)] if checks else ())]
    shown = []
    for noun, records in kinds:
        found = Counter(map(shown_outcome, records))
        outcomes = [f"{found[outcome]} {outcome}" for outcome in SHOWN if found[outcome]]
        shown.append(f"{many(len(records), noun)}: {', '.join(outcomes) or 'none asked for'}")
    weak = f" ({len(some)} weak)" if (some := weak_checks(checks)) else ""
    return "; ".join(shown) + weak


def compat_as_json(checks: Iterable[CheckRecord]) -> list[dict[str, Any]]:
    """Return what `doit compat` found, as records of report.json: a record for each operator and torch."""
    return [
        {
            "op": c.op,
            "torch": c.torch,
            "rows": [{k: row[k] for k in ("name", "outcome", "detail")} for row in c.results],
        }
        for c in checks
        if c.check == "compat" and c.results
    ]


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


def skipped_checks(checks: Iterable[CheckRecord]) -> tuple[Skipped, ...]:
    """Return what the parts of register could not check, by torch, oldest first."""
    # The check of several torches, 2.13+2.15, has no part that is skipped.
    records = [record for record in checks if record.torch and any("skipped" in result for result in record.results)]
    records.sort(key=lambda record: (numbers(str(record.torch)), record.op, record.check))
    ops_of: dict[tuple[str, str, str], list[str]] = {}  # by torch, reason and check
    for record in records:
        for result in (result for result in record.results if "skipped" in result):
            reason = str(result["skipped"]).removeprefix("skipped: ")
            key = str(record.torch), reason, str(result.get("check", record.check))
            ops_of.setdefault(key, []).append(record.op)
    checks_of: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}  # by torch, reason and operators
    for (torch, reason, check), ops in ops_of.items():
        checks_of.setdefault((torch, reason, tuple(dict.fromkeys(ops))), []).append(check)
    return tuple(Skipped(torch=t, reason=r, checks=tuple(checks), ops=ops) for (t, r, ops), checks in checks_of.items())
