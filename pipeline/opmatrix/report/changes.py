"""What differs between two reports: which cells and checks are newly broken, fixed, changed, new or gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from opmatrix.matrix.cells import Cell
from opmatrix.report.report_json import Document, Environments
from opmatrix.step import CheckKey
from opmatrix.verdict import WRONG

Kind = Literal["broken", "fixed", "changed", "new", "gone"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def compare(now: Document, before: Document) -> dict[str, Any]:
    """Return report.json's `changes`: the cells and checks of each kind, and the versions that differ, by environment.

    A broken one was right (verified or unsupported) and is wrong (mismatched or failed) now, a fixed one the other way
    round; a changed one has another outcome of the same kind. Only one report has a new or gone one.
    """
    outcomes, earlier = _outcomes(now), _outcomes(before)
    found: dict[str, Any] = {kind: [] for kind in KINDS}
    for name in outcomes | earlier:
        was, outcome = earlier.get(name), outcomes.get(name)
        if was != outcome:
            found[_kind(was, outcome)].append({"name": name, "before": was, "now": outcome})
    return found | {"versions": _versions(now["environments"], before["environments"])}


def kinds(changes: Mapping[str, Any] | None) -> dict[str, tuple[Kind, str | None]]:
    """Return the kind of change and the earlier outcome of each cell and check of the newer report, by its name."""
    if not changes:
        return {}
    return {entry["name"]: (kind, entry["before"]) for kind in KINDS if kind != "gone" for entry in changes[kind]}


def _kind(before: str | None, now: str | None) -> Kind:
    if before is None:
        return "new"
    if now is None:
        return "gone"
    if (before in WRONG) == (now in WRONG):
        return "changed"
    return "broken" if now in WRONG else "fixed"


def _outcomes(report: Document) -> dict[str, str]:
    """Return the outcomes by name: ``relu-custom@torch2.13-dynamo-opset18-ort1.31``, ``relu-kernel@torch2.13``."""
    fields = ("torch", "exporter", "opset", "ort")
    cells = {f"{c['op']}-{c['lowering']}@{Cell(**{f: c[f] for f in fields})}": c["outcome"] for c in report["cells"]}
    checks = report.get("checks", ())
    return cells | {str(CheckKey(c["op"] or "", c["check"], c["lowering"], c["torch"])): c["outcome"] for c in checks}


def _versions(now: Environments, before: Environments) -> dict[str, dict[str, list[str | None]]]:
    """Return each version that differs, as [before, now], in the environments that both reports have."""
    found: dict[str, dict[str, list[str | None]]] = {}
    for environment in (name for name in now if name in before):
        new, old = now[environment], before[environment]
        for package in {**new, **old}:
            if new.get(package) != old.get(package):
                found.setdefault(environment, {})[package] = [old.get(package), new.get(package)]
    return found
