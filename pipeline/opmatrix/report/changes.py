"""What differs between two reports: which cells broke, and which were mended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from opmatrix.matrix.cells import Cell
from opmatrix.report.environments import Environments
from opmatrix.report.report_json import Document
from opmatrix.verdict import WRONG

Kind = Literal["broken", "fixed", "changed", "new", "gone"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def compare(now: Document, before: Document) -> dict[str, Any]:
    """Return report.json's `changes`: the cells of each kind, and the versions that differ, by environment.

    A cell is broken that was right (verified or unsupported) and is wrong (mismatched or failed) now, and fixed the
    other way round; changed where the outcome differs otherwise. New and gone are those that only one report has.
    """
    mine, theirs = _outcomes(now), _outcomes(before)
    found: dict[str, Any] = {kind: [] for kind in KINDS}
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        was, outcome = theirs.get(name), mine.get(name)
        if was != outcome:
            found[_kind(was, outcome)].append({"cell": name, "before": was, "now": outcome})
    return found | {"versions": _versions(now["environments"], before["environments"])}


def kinds(changes: Mapping[str, Any] | None) -> dict[str, tuple[Kind, str | None]]:
    """Return kind of change and former outcome by the name of the cell, of the cells that there are now."""
    if not changes:
        return {}
    return {entry["cell"]: (kind, entry["before"]) for kind in KINDS if kind != "gone" for entry in changes[kind]}


def _kind(before: str | None, now: str | None) -> Kind:
    if before is None:
        return "new"
    if now is None:
        return "gone"
    if (before in WRONG) == (now in WRONG):
        return "changed"
    return "broken" if now in WRONG else "fixed"


def _outcomes(report: Document) -> dict[str, str]:
    return {_name(cell): cell["outcome"] for cell in report["cells"]}


def _name(record: Mapping[str, Any]) -> str:
    cell = Cell(**{key: record[key] for key in ("torch", "exporter", "opset", "ort")})
    return f"{record['op']}-{record['lowering']}@{cell}"


def _versions(now: Environments, before: Environments) -> dict[str, dict[str, list[str | None]]]:
    """Return what differs in the environments that both have; one that only one has, its cells tell of."""
    both = {name: _differing(versions, before[name]) for name, versions in now.items() if name in before}
    return {name: differing for name, differing in both.items() if differing}


def _differing(now: Mapping[str, str], before: Mapping[str, str]) -> dict[str, list[str | None]]:
    names: Iterable[str] = [*now, *(name for name in before if name not in now)]
    return {name: [before.get(name), now.get(name)] for name in names if before.get(name) != now.get(name)}
