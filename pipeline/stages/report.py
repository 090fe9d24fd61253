"""Say what is known about every cell: in the terminal, as JSON, as JUnit XML."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

from pipeline.errors import ReportError
from pipeline.files import write_bytes, write_text
from pipeline.layout import Layout
from pipeline.matrix import Cell
from pipeline.project import installed
from pipeline.report import junit, table
from pipeline.report.records import SCHEMA, Record, as_json, collect, counts
from pipeline.spec import Lowering


def run(layout: Layout, expected: Sequence[tuple[str, Lowering, Cell]]) -> None:
    """Write report.json and junit.xml, and print the table, for the `expected` cells.

    Raises ReportError unless each of them is verified, or unsupported for a reason.
    """
    records = [collect(layout, op, lowering, cell) for op, lowering, cell in expected]
    write_text(layout.report / "report.json", _json(records))
    write_bytes(layout.report / "junit.xml", junit.render([r.verdict for r in records]))
    table.show(records, Console())
    if not records:
        raise ReportError("no cell was asked for: no operator in ops/ has an opset from its min_opset on")
    if wrong := sum(r.verdict.outcome not in ("verified", "unsupported") for r in records):
        path = (layout.report / "report.json").relative_to(layout.root)
        raise ReportError(f"{wrong} of {len(records)} cells are neither verified nor unsupported; all of it in {path}")


def _json(records: Sequence[Record]) -> str:
    report = {
        "schema": SCHEMA,
        "counts": counts(records),
        "versions": {"python": platform.python_version(), **asdict(installed())},
        "cells": [as_json(r) for r in records],
    }
    return json.dumps(report, indent=1, allow_nan=False) + "\n"
