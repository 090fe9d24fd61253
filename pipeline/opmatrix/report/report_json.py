"""The report as report.json, see docs/report.md: make it, write it and read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from opmatrix.basics.version import minor, numbers
from opmatrix.project.paths import Paths
from opmatrix.project.settings import PACKAGES
from opmatrix.records.verdict import WRONG, Cases, CheckRecord, Verdict, finite
from opmatrix.report.records import OUTCOMES, SCHEMA, ReportedPart, Skipped, compat_as_json, counts, weak_checks

Document = Mapping[str, Any]
"""The content of report.json."""
MAIN = "main"
Environments = Mapping[str, Mapping[str, str]]
"""Versions by package (and "python"), by the name of the environment."""

_READABLE = (2, 3, 4, SCHEMA)  # all have the keys of cells that a comparison reads
_CELL = ("op", "lowering", "torch", "exporter", "opset", "ort")  # the fields that name a cell
_CHECK = ("op", "check", "lowering", "torch")
_CHECK_FIELDS = ("check", "lowering", "torch", "outcome", "detail")
_LISTS = ("cells", "checks")
_PARTS = (*_LISTS, "cases")
_HEAD = 4  # lines, up to those of `_COUNTS`
_COUNTS = ('"counts": ', '"check_counts": ')


def document(
    verdicts: Sequence[Verdict],
    environments: Environments,
    skipped: Sequence[Skipped] = (),
    checks: Sequence[CheckRecord] = (),
    mutation: Sequence[Mapping[str, Any]] = (),
    part: ReportedPart | None = None,
    shared: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the report, not yet compared with an earlier one. `mutation` has the scores of `doit mutate`, `shared` the
    steps whose results came from a shared cache (`opmatrix.report.history`)."""
    shard = None if part is None else {key: getattr(part, key) for key in ("number", "of", "cells", "checks")}
    cells, cases = _cells(verdicts)
    return {
        "schema": SCHEMA,
        "counts": counts(verdicts),
        "check_counts": counts(checks, "checks") | {"weak": len(weak_checks(checks))},
        "shard": shard,
        "shared": [*shared],
        "environments": {name: dict(versions) for name, versions in environments.items()},
        "changes": None,
        "skipped": [s.as_json() for s in skipped],
        "mutation": [*mutation],
        "compat": compat_as_json(checks),
        "checks": [  # the details of what was checked remain in the file of the record
            {"op": c.op or None, **{key: getattr(c, key) for key in _CHECK_FIELDS}, "weak": [*c.weak]} for c in checks
        ],
        "cells": cells,
        "cases": cases,
    }


def _cells(verdicts: Sequence[Verdict]) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return the cells, and the lists of their cases by key, ``group_norm-custom-1``: cells of an operator with equal
    cases share one. docs/reference/report-schema.md describes each key."""
    keys: dict[tuple[str, str], dict[Cases, str]] = {}  # of an operator and lowering
    cells, lists = [], {}
    for found in verdicts:
        known = keys.setdefault((found.op, found.lowering), {})
        if found.cases not in known:
            key = known[found.cases] = f"{found.op}-{found.lowering}-{len(known) + 1}"
            lists[key] = found.cases.as_json
        cells.append(
            {
                "op": found.op,
                "lowering": found.lowering,
                **{key: getattr(found.cell, key) for key in ("torch", "exporter", "opset", "ort")},
                "outcome": found.outcome,
                "worst_error": finite(found.cases.error),
                "worst_ulp": found.cases.ulp,
                "worst_tolerance_used": finite(found.cases.tolerance_used),
                "detail": found.detail,
                "reference": found.reference,
                "cpu_levels": [*found.cpu_levels],
                "cases": known[found.cases],
            }
        )
    return cells, lists


def text(report: Document) -> str:
    """Return the document with a line for each key, check, cell and list of cases. json's own `indent` takes five times
    as long, as it leaves C."""
    dumps = json.JSONEncoder(allow_nan=False).encode
    lines = [f"{dumps(key)}: {dumps(value)}" for key, value in report.items() if key not in _PARTS]
    for key in reversed(_LISTS):
        records = ",\n".join(map(dumps, report[key]))
        lines.append(f"{dumps(key)}: [\n{records}\n]")
    lists = ",\n".join(f"{dumps(key)}: {dumps(cases)}" for key, cases in report["cases"].items())
    return "{\n" + ",\n".join([*lines, f'"cases": {{\n{lists}\n}}']) + "\n}\n"


def parse(content: str) -> Document | None:
    """Return the document in `content`, or None where it has another form or is damaged."""
    try:
        report: Document = json.loads(content)
    except ValueError:
        return None
    match report:
        case {"schema": schema, "environments": dict(environments), "cells": list(cells)} if schema in _READABLE:
            valid = _valid(cells, _CELL) and _valid(report.get("checks", [] if schema < 4 else None), _CHECK)
            if all(isinstance(versions, dict) for versions in environments.values()) and valid:
                return report
    return None


def _valid(records: object, fields: Sequence[str]) -> bool:
    """Return whether `records` is a list of records with an outcome and the `fields` that name each."""
    return isinstance(records, list) and all(
        isinstance(r, dict) and r.get("outcome") in OUTCOMES and {*fields} <= {*r} for r in records
    )


def is_wrong(path: Path) -> bool:
    """Return whether the report in a file has a wrong cell or check. Reads only its first lines."""
    try:
        with path.open(encoding="utf-8") as file:
            lines = [line for line in islice(file, _HEAD) if line.startswith(_COUNTS)]
    except FileNotFoundError:
        return False
    found = [json.loads(line.partition(": ")[2].rstrip(",\n")) for line in lines]
    return any(counts[outcome] for counts in found for outcome in WRONG)


def same(a: Document, b: Document) -> bool:
    """Return whether two documents are of the same run: they may differ in what they were compared with."""
    return all(a.get(key) == b.get(key) for key in ("schema", "environments", *_PARTS))


def used_environments(paths: Paths, verdicts: Sequence[Verdict], main: Mapping[str, str]) -> Environments:
    """Return the versions of the main environment, `main`, and of those that the cells of `verdicts` need, in the order
    of the matrix. An environment that could not be made has no versions and is left out."""
    environments = {MAIN: dict(main)}
    for factor, package in (("torch", "torch"), ("ort", "onnxruntime")):
        asked = dict.fromkeys(getattr(v.cell, factor) for v in verdicts)
        for version in sorted(filter(None, asked), key=numbers):
            name = f"{factor}{version}"
            if version != minor(main[package]) and (versions := _versions(paths, name)):
                environments[name] = versions
    return environments


def _versions(paths: Paths, name: str) -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with suppress(FileNotFoundError):
            found[package] = paths.installed_version(name, package).read_text(encoding="utf-8").strip()
    found = {package: version for package, version in found.items() if version}
    python = "unknown"
    with suppress(FileNotFoundError):  # venv recorded the version when it created the environment
        lines = (paths.environment(name) / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        settings = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
        python = settings.get("version", python)
    return {"python": python, **found} if found else {}
