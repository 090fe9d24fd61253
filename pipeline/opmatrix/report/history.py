"""What the report knows of runs: the results of the last ones, the seconds that the steps of each operator last took,
and which results came from a shared cache, by whose signature. The metadata of a wheel has the last, too."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from opmatrix.basics.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.records.step import read_name
from opmatrix.records.verdict import WRONG, CheckRecord, Verdict, finite
from opmatrix.report.records import OUTCOMES, counts

KEPT = 30
"""Runs in the history."""
Origins = Mapping[str, tuple[str, str | None]]
"""By the name of a step: the address of the shared cache that its result came from, and who signed it."""


def record(
    paths: Paths, verdicts: Sequence[Verdict], checks: Sequence[CheckRecord], *, now: float | None = None
) -> list[dict[str, Any]]:
    """Add this run to the history, unless its results are those of the last run, and return the last runs, oldest
    first. docs/report.md describes a run. A damaged line of the file is left out."""
    runs = _read(paths)
    results = _results(verdicts, checks)
    if runs and {key: value for key, value in runs[-1].items() if key != "time"} == results:
        return runs
    written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    runs = [*runs, {"time": written, **results}][-KEPT:]
    write_text(paths.report_history, "".join(f"{json.dumps(run, allow_nan=False)}\n" for run in runs))
    return runs


def _results(verdicts: Sequence[Verdict], checks: Sequence[CheckRecord]) -> dict[str, Any]:
    operators: dict[str, dict[str, Any]] = {}
    for found in verdicts:
        one = operators.setdefault(found.op, {"cells": 0, "wrong": 0, "tolerance_used": None})
        one["cells"] += 1
        one["wrong"] += found.outcome in WRONG
        used = finite(found.cases.tolerance_used)
        if used is not None:
            one["tolerance_used"] = max(float(f"{used:.3g}"), one["tolerance_used"] or 0.0)
    outcomes = {name: counts(some, "all") for name, some in (("cells", verdicts), ("checks", checks))}
    return {**outcomes, "operators": operators}


def _read(paths: Paths) -> list[dict[str, Any]]:
    lines, runs = list[str](), []
    with suppress(FileNotFoundError):
        lines = paths.report_history.read_text(errors="replace", encoding="utf-8").splitlines()
    for line in lines:
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            run = json.loads(line)
            json.dumps(run, allow_nan=False)
            counted = all(isinstance(run[name][outcome], int) for name in ("cells", "checks") for outcome in OUTCOMES)
            operators = all({"wrong", "tolerance_used"} <= one.keys() for one in run["operators"].values())
            if counted and operators and isinstance(run["time"], str):
                runs.append(run)
    return runs


def write_seconds(paths: Paths, durations: Mapping[str, float]) -> None:
    """Write the seconds that steps last took, by operator and stage, for `seconds`. The engine does, because a step is
    a fork of the process that has the state open, in which sqlite cannot read it."""
    found: dict[str, dict[str, float]] = {}
    for task, took in durations.items():
        name = read_name(task)
        of = found.setdefault(name.operator, {})
        of[name.group] = of.get(name.group, 0.0) + took
    rounded = {op: {stage: round(of[stage], 2) for stage in sorted(of)} for op, of in sorted(found.items()) if op}
    write_text(paths.report_seconds, json.dumps(rounded) + "\n")


def seconds(paths: Paths, operators: Set[str]) -> dict[str, Any]:
    """Return the seconds that the steps of each operator last took, by stage; none where the file is not valid."""
    try:
        found = json.loads(paths.report_seconds.read_text(encoding="utf-8"))
        return {op: {stage: float(took) for stage, took in found[op].items()} for op in sorted({*found} & operators)}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_origins(paths: Paths, origins: Origins) -> None:
    """Write the origins for `read_origins`. The engine does, as above."""
    if origins or paths.origins.exists():
        write_text(paths.origins, json.dumps(dict(sorted(origins.items())), indent=0) + "\n")


def read_origins(paths: Paths) -> Origins:
    """Return the origins; none where the file is not valid."""
    try:
        found = json.loads(paths.origins.read_text(encoding="utf-8"))
        return {step: (str(url), None if signer is None else str(signer)) for step, (url, signer) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def origins_as_json(origins: Origins) -> list[dict[str, Any]]:
    """Return an object for each address and signer, with the steps, for report.json."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for step, origin in sorted(origins.items()):
        groups.setdefault(origin, []).append(step)
    return [{"from": url, "signer": signer, "steps": steps} for (url, signer), steps in groups.items()]
