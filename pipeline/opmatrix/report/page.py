"""The report as one HTML page without further files. Scripts in the browser show it from one JSON document.

The data of the page is a table by columns. A column of strings is ``{"values": [...], "rows": [...]}``, where a row is
the index of its string in the values; a column of numbers is a list. Cases have a table of their own: cell i has the
list ``cells.cases[i]`` of cases, which cells with equal cases share, and ``cases.ends[n]`` is where list n ends.
Numbers have three digits: report.json has all.
docs/report.md describes ``mismatches``, the errors of failing cases.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from opmatrix.basics.terminal import for_shell
from opmatrix.project.cells import EXPORTERS
from opmatrix.records.verdict import CaseResult, CheckRecord, Verdict, finite
from opmatrix.report.details import Background
from opmatrix.report.markdown import kinds
from opmatrix.report.page_template import join
from opmatrix.report.records import OUTCOMES, weak_checks
from opmatrix.report.report_json import Document

NO_MISMATCHES: Mapping[str, Any] = {"records": [], "shown": {}, "failing": 0, "over": []}
"""What `opmatrix.report.details` returns where nothing fails."""


def render(
    report: Document,
    verdicts: Sequence[Verdict],
    backgrounds: Sequence[Background],
    checks: Sequence[CheckRecord] = (),
    mismatches: Mapping[str, Any] = NO_MISMATCHES,
    links: Mapping[str, str] | None = None,
    runs: Sequence[Mapping[str, Any]] = (),
    seconds: Mapping[str, Mapping[str, float]] | None = None,
    bench: Sequence[Mapping[str, Any]] = (),
    *,
    root: Path = Path(),
) -> str:
    """Return the HTML of the page, from one background for each verdict, the records of failing cases, the addresses of
    a cell's files (`details.links`), the last runs and the seconds of each operator (`report.history`), and the times
    of `doit bench`. `root` is the project's, in which commands run."""
    found = data(report, verdicts, backgrounds, checks, root=root)
    found |= {"mismatches": mismatches, "links": links, "history": [*runs], "seconds": seconds or {}}
    if bench:
        found["bench"] = [{**one, "problem": for_shell(one["problem"], root)} for one in bench]
    return join(json.dumps(found, separators=(",", ":"), allow_nan=False), bench=bool(bench))


def data(
    report: Document,
    verdicts: Sequence[Verdict],
    backgrounds: Sequence[Background],
    checks: Sequence[CheckRecord] = (),
    *,
    root: Path = Path(),
) -> dict[str, Any]:
    """Return the JSON document of the page."""
    changed = kinds(report["changes"])
    changes = [changed.get(str(v), ("", None)) for v in verdicts]
    lists = [*dict.fromkeys(v.results for v in verdicts)]
    cases = [case for one in lists for case in one]
    rounded = _Rounded()
    graphs = _Graphs()
    return {
        "schema": report["schema"],
        "run": for_shell("python -m opmatrix", root).removesuffix("python -m opmatrix"),
        "shard": report.get("shard"),
        "shared": report.get("shared", []),
        "environments": report["environments"],
        "changes": report["changes"],
        "skipped": report["skipped"],
        "mutation": report.get("mutation", []),
        "compat": report.get("compat", []),
        "outcomes": OUTCOMES,
        "exporters": EXPORTERS,
        "cells": {
            **_columns(verdicts, "op", "lowering"),
            **_columns([v.cell for v in verdicts], "torch", "exporter", "opset", "ort"),
            **_columns(verdicts, "outcome", "detail"),
            "blocked": _column(_blocked(v) for v in verdicts),
            "log": _column(b.log and for_shell(b.log, root) for b in backgrounds),
            "change": _column(kind for kind, _ in changes),
            "before": _column(before for _, before in changes),
            "pictures": _column(graphs.by_model(b.pictures) for b in backgrounds),
            "cases": _column(v.results for v in verdicts)["rows"],
            **_errors(verdicts, rounded),
        },
        "checks": [
            {
                "name": str(c),
                **{field: getattr(c, field) for field in ("op", "check", "lowering", "torch", "outcome", "detail")},
                "blocked": _blocked(c),
                "replay": for_shell(c.replay, root),
                "change": changed.get(str(c), ("", None))[0],
                "weak": c.weak if weak_checks([c]) else (),
                "notes": [result["note"] for result in c.results if "note" in result],
                "checked": len(c.results),
                "search": next(({key: r[key] for key in _SEARCH} for r in c.results if {*_SEARCH} <= {*r}), None),
            }
            for c in checks
        ],
        "cases": {
            "ends": list(accumulate(map(len, lists))),
            **_columns(cases, "case", "model", "outcome", "detail", "judged_in"),
            **_errors(cases, rounded),
        },
        "graphs": graphs.found,
    }


def _blocked(found: Verdict | CheckRecord) -> str:
    return f"{found.blocked_by.group}:{found.blocked_by.name}" if found.blocked_by else ""


# Of what a search tried: docs/search.md.
_SEARCH = ("examples", "refused", "new_shapes", "attributes", "dtypes", "large", "dropped")

_MOST = 1e300  # instead of infinity, which JSON does not have: the page shows all above 999 % alike


class _Rounded(dict[float | None, float | None]):
    """Numbers with three digits, by the number: most are in many cells."""

    def __missing__(self, number: float | None) -> float | None:
        found = self[number] = None if number is None else float(f"{min(number, _MOST):.3g}")
        return found


class _Graphs:
    """Graph drawings, each stored once: most are equal in every torch and opset."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._indices: dict[str, int] = {}
        self._known: dict[int, tuple[tuple[str, int], ...]] = {}  # by id: cells share what was read once

    def by_model(self, pictures: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        """Return the models of a cell, each with the index of its graph."""
        if (found := self._known.get(id(pictures))) is None:
            found = tuple((model, self._index(graph)) for model, graph in pictures.items())
            self._known[id(pictures)] = found
        return found

    def _index(self, graph: Any) -> int:
        index = self._indices.setdefault(json.dumps(graph), len(self.found))
        if index == len(self.found):
            self.found.append(graph)
        return index


def _column(values: Iterable[Hashable]) -> dict[str, Any]:
    indices: dict[Hashable, int] = {}
    rows = [indices.setdefault(value, len(indices)) for value in values]
    return {"values": list(indices), "rows": rows}


def _columns(records: Sequence[object], *fields: str) -> dict[str, Any]:
    return {field: _column(getattr(record, field) for record in records) for field in fields}


def _errors(results: Sequence[Verdict | CaseResult], rounded: _Rounded) -> dict[str, list[float | None]]:
    return {
        "error": [rounded[finite(r.error)] for r in results],
        "ulp": [rounded[r.ulp] for r in results],
        "tolerance_used": [rounded[r.tolerance_used] for r in results],
    }
