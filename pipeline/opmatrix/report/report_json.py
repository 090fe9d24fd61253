"""The report as one JSON document, docs/report.md, and its text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opmatrix.report.environments import Environments
from opmatrix.report.records import OUTCOMES, SCHEMA, as_json, counts
from opmatrix.report.skipped_checks import Skipped
from opmatrix.verdict import WRONG, Verdict

Document = Mapping[str, Any]
"""What report.json holds."""

_READABLE = (2, SCHEMA)  # what a comparison reads is the same in both
_COMPARED = ("schema", "environments", "cells")


def document(
    verdicts: Sequence[Verdict], environments: Environments, skipped: Sequence[Skipped] = ()
) -> dict[str, Any]:
    """Return the report, as yet compared with no other."""
    return {
        "schema": SCHEMA,
        "counts": counts(verdicts),
        "environments": {name: dict(versions) for name, versions in environments.items()},
        "changes": None,
        "skipped": [s.as_json() for s in skipped],
        "cells": [as_json(v) for v in verdicts],
    }


def text(report: Document) -> str:
    """Return the document with a line for each key, and for each cell.

    A line is written by the encoder in C, and an indented text by the one in Python, which takes five times as long.
    """
    lines = [f"{_dumps(key)}: {_dumps(value)}" for key, value in report.items() if key != "cells"]
    cells = ",\n".join(map(_dumps, report["cells"]))
    return "{\n" + ",\n".join([*lines, f'"cells": [\n{cells}\n]']) + "\n}\n"


def parse(content: str) -> Document | None:
    """Return the document that stands in `content`, or None where that is of another form, or damaged."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("schema") not in _READABLE:
        return None
    environments, cells = found.get("environments"), found.get("cells")
    if not isinstance(environments, dict) or not all(isinstance(versions, dict) for versions in environments.values()):
        return None
    return found if isinstance(cells, list) and all(map(_is_cell, cells)) else None


def is_wrong(path: Path) -> bool:
    """Return whether the report in a file has a cell that is wrong. Reads its first lines alone."""
    try:
        with path.open() as file:
            counts = next(line for line in file if line.startswith('"counts": '))
    except (FileNotFoundError, StopIteration):
        return False
    found = json.loads(counts.partition(": ")[2].rstrip(",\n"))
    return any(found[outcome] for outcome in WRONG)


def same(a: Document, b: Document) -> bool:
    """Return whether two documents tell of the same run: all but what they were compared with is equal."""
    return all(a[key] == b[key] for key in _COMPARED)


def _is_cell(found: Any) -> bool:
    return isinstance(found, dict) and found.get("outcome") in OUTCOMES and {*_NAMED} <= {*found}


_NAMED = ("op", "lowering", "torch", "exporter", "opset", "ort")


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
