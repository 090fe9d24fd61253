"""The report as one page that needs nothing else. What it shows is put together in the browser, from one JSON text.

The data of the page is a table by columns. A column of texts is ``{"values": [...], "rows": [...]}``, where a row is
the place of its text among the values; a column of numbers is a list. Cases stand in a table of their own, in the order
of the cells, and ``cases.ends[i]`` is where those of cell i end. Numbers are cut to three digits: report.json has all.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from opmatrix.matrix.cells import EXPORTERS
from opmatrix.report.changes import kinds
from opmatrix.report.html_template import join
from opmatrix.report.logs_and_graphs import Background
from opmatrix.report.records import OUTCOMES
from opmatrix.report.report_json import Document
from opmatrix.verdict import Verdict, finite


def render(report: Document, verdicts: Sequence[Verdict], backgrounds: Sequence[Background]) -> str:
    """Return the HTML of the page. There is one background for each verdict."""
    return join(json.dumps(data(report, verdicts, backgrounds), separators=(",", ":"), allow_nan=False))


def data(report: Document, verdicts: Sequence[Verdict], backgrounds: Sequence[Background]) -> dict[str, Any]:
    """Return what the page embeds."""
    changed = kinds(report["changes"])
    changes = [changed.get(str(v), ("", None)) for v in verdicts]
    rounded = _Rounded()
    graphs = _Graphs()
    return {
        "schema": report["schema"],
        "environments": report["environments"],
        "changes": report["changes"],
        "skipped": report["skipped"],
        "outcomes": OUTCOMES,
        "exporters": EXPORTERS,
        "cells": {
            "op": _column(v.op for v in verdicts),
            "lowering": _column(v.lowering for v in verdicts),
            "torch": _column(v.cell.torch for v in verdicts),
            "exporter": _column(v.cell.exporter for v in verdicts),
            "opset": _column(v.cell.opset for v in verdicts),
            "ort": _column(v.cell.ort for v in verdicts),
            "outcome": _column(v.outcome for v in verdicts),
            "detail": _column(v.detail for v in verdicts),
            "log": _column(b.log for b in backgrounds),
            "change": _column(kind for kind, _ in changes),
            "before": _column(before for _, before in changes),
            "pictures": _column(graphs.places(b.pictures) for b in backgrounds),
            "error": [rounded[finite(v.error)] for v in verdicts],
            "ulp": [rounded[v.ulp] for v in verdicts],
            "tolerance_used": [rounded[v.tolerance_used] for v in verdicts],
            "seconds": [rounded[v.seconds] for v in verdicts],
        },
        "cases": _cases(verdicts, rounded),
        "graphs": graphs.found,
    }


_MOST = 1e300  # stands for the infinite, which JSON cannot hold: the page shows any number above 999 % alike


class _Rounded(dict[float | None, float | None]):
    """Numbers cut to three digits. Most stand in many cells."""

    def __missing__(self, number: float | None) -> float | None:
        found = self[number] = None if number is None else float(f"{min(number, _MOST):.3g}")
        return found


class _Graphs:
    """Pictures, each kept once: neither torch nor an opset changes most of them."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._places: dict[str, int] = {}

    def places(self, pictures: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        """Return the models of a cell, each with the place of its picture."""
        return tuple((model, self._place(graph)) for model, graph in pictures.items())

    def _place(self, graph: Any) -> int:
        text = json.dumps(graph)
        if text not in self._places:
            self._places[text] = len(self.found)
            self.found.append(graph)
        return self._places[text]


def _column(texts: Iterable[Hashable]) -> dict[str, Any]:
    places: dict[Hashable, int] = {}
    rows = [places.setdefault(text, len(places)) for text in texts]
    return {"values": list(places), "rows": rows}


def _cases(verdicts: Sequence[Verdict], rounded: _Rounded) -> dict[str, Any]:
    cases = [case for v in verdicts for case in v.cases]
    return {
        "ends": list(accumulate(len(v.cases) for v in verdicts)),
        "case": _column(c.case for c in cases),
        "model": _column(c.model for c in cases),
        "outcome": _column(c.outcome for c in cases),
        "detail": _column(c.detail for c in cases),
        "error": [rounded[finite(c.error)] for c in cases],
        "ulp": [rounded[c.ulp] for c in cases],
        "tolerance_used": [rounded[c.tolerance_used] for c in cases],
    }
