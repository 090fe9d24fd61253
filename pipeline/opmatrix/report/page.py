"""The report as one HTML page without further files. Scripts in the browser show it from one JSON document.

The data of the page is a table by columns. A column of strings is ``{"values": [...], "rows": [...]}``, where a row is
the index of its string in the values; a column of numbers is a list. Cases have a table of their own: cell i has the
list ``cells.cases[i]`` of cases, which cells with equal cases share, and ``cases.ends[n]`` is where list n ends.
Numbers have three digits: report.json has all.
docs/report.md describes ``mismatches``, the errors of failing cases.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import without_colours
from opmatrix.basics.terminal import for_shell
from opmatrix.project.cells import EXPORTERS, Cell
from opmatrix.project.paths import Paths
from opmatrix.records.verdict import WRONG, CaseResult, Cases, CheckRecord, Found, Verdict, finite
from opmatrix.report.markdown import kinds
from opmatrix.report.page_template import join
from opmatrix.report.read_cache import ReadCache
from opmatrix.report.records import OUTCOMES, weak_checks
from opmatrix.report.report_json import Document

NO_MISMATCHES: Mapping[str, Any] = {"records": [], "shown": {}, "failing": 0, "over": []}
"""What `read_mismatches` returns where nothing fails."""

_BYTES = 4096  # of the end of a log: a crash may leave pages
_LINES = 40

MOST = 20
"""Records in the page. The verdicts have all failing cases."""
CHECKS = ("kernel", "search", "gradient")  # that compare numbers
_MOST_FILES = 60  # that are read: not each failing case has a record

_EVERY = ""  # in place of a case: a check's record names none, so that it has all in its file


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
    a cell's files (`links`), the last runs and the seconds of each operator (`report.history`), and the times
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
    lists = [*dict.fromkeys(v.cases for v in verdicts)]
    cases = [case for one in lists for case in one]
    graphs, models = _graphs(backgrounds)
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
            "pictures": _column(models),
            "cases": _column(v.cases for v in verdicts)["rows"],
            **_errors([v.cases for v in verdicts]),
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
            **_errors(cases),
        },
        "graphs": graphs,
    }


def _blocked(record: Verdict | CheckRecord) -> str:
    return f"{record.blocked_by.group}:{record.blocked_by.name}" if record.blocked_by else ""


# Of what a search tried: docs/search.md.
_SEARCH = ("examples", "refused", "new_shapes", "attributes", "dtypes", "large", "dropped")

_MOST = 1e300  # instead of infinity, which JSON does not have: the page shows all above 999 % alike


@cache  # most numbers are in many cells
def _rounded(number: float | None) -> float | None:
    """Return a number with three digits."""
    return None if number is None else float(f"{min(number, _MOST):.3g}")


def _graphs(backgrounds: Sequence[Background]) -> tuple[list[Any], list[tuple[tuple[str, int], ...]]]:
    """Return the graph drawings, each once, as most are equal in every torch and opset; and of each cell its models,
    with the indices of their graphs."""
    graphs, indices = list[Any](), dict[str, int]()
    models: dict[int, tuple[tuple[str, int], ...]] = {}  # by id: cells share what was read once
    for pictures in (background.pictures for background in backgrounds):
        if id(pictures) not in models:
            of = []
            for model, graph in pictures.items():
                index = indices.setdefault(json.dumps(graph), len(graphs))
                if index == len(graphs):
                    graphs.append(graph)
                of.append((model, index))
            models[id(pictures)] = tuple(of)
    return graphs, [models[id(background.pictures)] for background in backgrounds]


def _column(values: Iterable[Hashable]) -> dict[str, Any]:
    indices: dict[Hashable, int] = {}
    rows = [indices.setdefault(value, len(indices)) for value in values]
    return {"values": list(indices), "rows": rows}


def _columns(records: Sequence[object], *fields: str) -> dict[str, Any]:
    return {field: _column(getattr(record, field) for record in records) for field in fields}


def _errors(results: Sequence[Cases | CaseResult]) -> dict[str, list[float | None]]:
    return {
        "error": [_rounded(finite(r.error)) for r in results],
        "ulp": [_rounded(r.ulp) for r in results],
        "tolerance_used": [_rounded(r.tolerance_used) for r in results],
    }


@dataclass(frozen=True, kw_only=True)
class Background:
    """The last lines of a log, and `opmatrix.export.manifest.graph_json` of each model by name."""

    log: str = ""
    pictures: Mapping[str, Any] = field(default_factory=dict)


def read_background(cache: ReadCache, verdict: Verdict) -> Background:
    """Return the drawings, and the log of a cell that is not verified. Where an earlier step failed, return the log of
    that step: the log of verify belongs to an earlier run, and so do the drawings where the export failed."""
    blocked, paths = verdict.blocked_by, cache.paths
    log = ""
    if verdict.outcome != "verified":
        log = _end(paths.log(f"{blocked.group}:{blocked.name}" if blocked else f"verify:{verdict}"))
    pictures = None
    if not (blocked and blocked.group == "export"):
        with suppress(FileNotFoundError, ValueError):
            pictures = cache.drawings(paths.graph_drawings(verdict.op, verdict.lowering, verdict.cell))
    return Background(log=log, pictures=pictures if isinstance(pictures, dict) else {})


def links(paths: Paths) -> Mapping[str, str]:
    """Return the addresses of files of a cell, from the folder of the report on, with a field ``{name}`` for each part.
    `export` is the part of a cell that names its export."""
    cell = Cell(torch=None, exporter="node", opset=0, ort="")
    model = paths.model("{op}", "{lowering}", cell, "{model}")
    folder = model.parent.parent.with_name("{export}")
    linked = {
        "log": paths.log("verify:{name}"),
        "model": folder / model.relative_to(model.parent.parent),
        "data": paths.data("{op}", "{model}", 0).parent,
    }
    start = paths.report_data.parent
    return {name: os.path.relpath(path, start) for name, path in linked.items()}


def _end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _BYTES))
            lines = without_colours(file.read().decode(errors="replace")).splitlines()
    except FileNotFoundError:
        return ""
    complete = lines[1:] if size > _BYTES else lines  # the first line may be cut
    return "\n".join(complete[-_LINES:])


def read_mismatches(paths: Paths, verdicts: Iterable[Verdict], checks: Iterable[CheckRecord]) -> dict[str, Any]:
    """Return the records, and which one each failing case has: ``shown[name]["case/model"]`` is its index.

    A case whose message is the same in several cells has one record, of the first cell. Each operator's cases come
    first with one record, then those with other messages. ``over[record["over"]]`` has the sizes of all cases of the
    operator, as in the first cell or check of its kind with a record.
    """
    groups: dict[tuple[str, ...], list[tuple[Found, str]]] = {}
    for found, case, message in _failing(verdicts, checks):
        groups.setdefault((found.op, str(found.lowering), case, message), []).append((found, case))
    first = {key[:3]: key for key in reversed(groups)}  # one of each operator, lowering and case
    records: list[dict[str, Any]] = []
    shown: dict[str, dict[str, int]] = {}
    files: dict[Path, dict[str, dict[str, Any]]] = {}
    over: dict[tuple[str, str], dict[str, Any]] = {}
    for key in dict.fromkeys([*reversed(first.values()), *groups]):
        found, case = groups[key][0]
        record = paths.verdict(*found.key) if isinstance(found, Verdict) else paths.check_record(*found.key)
        path = paths.mismatches(record)
        if len(records) >= MOST or (path not in files and len(files) >= _MOST_FILES):
            continue
        kind = (found.op, found.lowering if isinstance(found, Verdict) else found.check)
        if path not in files:
            files[path], all_cases = _read(path)
            if all_cases:
                over.setdefault(kind, all_cases)
        for name in files[path] if case == _EVERY else files[path].keys() & {case}:
            for other, _ in groups[key]:
                shown.setdefault(str(other), {})[name] = len(records)
            of = [*over].index(kind) if kind in over else None
            records.append({"of": str(found), "over": of, **files[path][name]})
    failing = sum(map(len, groups.values()))
    return {"records": records, "shown": shown, "failing": failing, "over": [*over.values()]}


def _failing(verdicts: Iterable[Verdict], checks: Iterable[CheckRecord]) -> Iterator[tuple[Found, str, str]]:
    """Yield the failing cases that may have a record, as ``case/model``, each with its message."""
    for found in verdicts:
        for c in found.cases.of(*WRONG):
            if c.outcome == "mismatched" or c.kind == "drawn":
                yield found, f"{c.case}/{c.model}", c.detail
    for check in checks:
        if check.outcome == "failed" and check.check in CHECKS and not check.blocked_by:
            yield check, _EVERY, check.detail


def _read(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the records in a file by ``case/model``, and what it has of all cases; none where it is missing or
    damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {f"{one['case']}/{one['model']}": one for one in content["mismatches"]}, content.get("over") or {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}, {}
