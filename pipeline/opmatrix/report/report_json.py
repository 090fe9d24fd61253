"""The report as report.json, see docs/report.md: make it, write it and read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from opmatrix.project.paths import Paths
from opmatrix.project.settings import PACKAGES
from opmatrix.report.records import OUTCOMES, SCHEMA, Skipped, as_json, counts
from opmatrix.verdict import WRONG, Verdict
from opmatrix.version import minor, numbers

Document = Mapping[str, Any]
"""The content of report.json."""
MAIN = "main"
Environments = Mapping[str, Mapping[str, str]]
"""Versions by package (and "python"), by the name of the environment."""

_READABLE = (2, SCHEMA)  # what a comparison reads is the same in both
_CELL = ("op", "lowering", "torch", "exporter", "opset", "ort")  # the fields that name a cell


def document(
    verdicts: Sequence[Verdict], environments: Environments, skipped: Sequence[Skipped] = ()
) -> dict[str, Any]:
    """Return the report, not yet compared with an earlier one."""
    return {
        "schema": SCHEMA,
        "counts": counts(verdicts),
        "environments": {name: dict(versions) for name, versions in environments.items()},
        "changes": None,
        "skipped": [s.as_json() for s in skipped],
        "cells": [as_json(v) for v in verdicts],
    }


def text(report: Document) -> str:
    """Return the document with a line for each key and cell. json's own `indent` takes five times as long, as it leaves
    C."""
    dumps = partial(json.dumps, allow_nan=False)
    lines = [f"{dumps(key)}: {dumps(value)}" for key, value in report.items() if key != "cells"]
    cells = ",\n".join(map(dumps, report["cells"]))
    return "{\n" + ",\n".join([*lines, f'"cells": [\n{cells}\n]']) + "\n}\n"


def parse(content: str) -> Document | None:
    """Return the document in `content`, or None where it has another form or is damaged."""
    try:
        found: Document = json.loads(content)
    except ValueError:
        return None
    match found:
        case {"schema": schema, "environments": dict(environments), "cells": list(cells)} if schema in _READABLE:
            valid = (isinstance(c, dict) and c.get("outcome") in OUTCOMES and {*_CELL} <= {*c} for c in cells)
            if all(isinstance(versions, dict) for versions in environments.values()) and all(valid):
                return found
    return None


def is_wrong(path: Path) -> bool:
    """Return whether the report in a file has a wrong cell. Reads only its first lines."""
    try:
        with path.open() as file:
            counts = next(line for line in file if line.startswith('"counts": '))
    except (FileNotFoundError, StopIteration):
        return False
    found = json.loads(counts.partition(": ")[2].rstrip(",\n"))
    return any(found[outcome] for outcome in WRONG)


def same(a: Document, b: Document) -> bool:
    """Return whether two documents are of the same run: they may differ in what they were compared with."""
    return all(a[key] == b[key] for key in ("schema", "environments", "cells"))


def used_environments(layout: Paths, verdicts: Sequence[Verdict], main: Mapping[str, str]) -> Environments:
    """Return the versions of the main environment, `main`, and of those that the cells of `verdicts` need, in the order
    of the matrix. An environment that could not be made has no versions and is left out."""
    found = {MAIN: dict(main)}
    for factor, package in (("torch", "torch"), ("ort", "onnxruntime")):
        asked = dict.fromkeys(getattr(v.cell, factor) for v in verdicts)
        for version in sorted(filter(None, asked), key=numbers):
            name = f"{factor}{version}"
            if version != minor(main[package]) and (versions := _versions(layout, name)):
                found[name] = versions
    return found


def _versions(layout: Paths, name: str) -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with suppress(FileNotFoundError):
            found[package] = layout.installed_version(name, package).read_text().strip()
    found = {package: version for package, version in found.items() if version}
    return {"python": _python(layout, name), **found} if found else {}


def _python(layout: Paths, name: str) -> str:
    """Return the version that venv recorded when it created the environment."""
    with suppress(FileNotFoundError):
        for line in (layout.environment(name) / "pyvenv.cfg").read_text().splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "version":
                return value.strip()
    return "unknown"
