"""What the HTML page shows with a verdict: the end of its log, its models as graph drawings, links to its files, and
the errors of failing cases, of few, since each takes up to 30 kB."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import without_colours
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records.verdict import WRONG, CheckRecord, Found, Verdict
from opmatrix.report.read_cache import ReadCache

_BYTES = 4096  # of the end of a log: a crash may leave pages
_LINES = 40


@dataclass(frozen=True, kw_only=True)
class Background:
    """The last lines of a log, and `opmatrix.export.manifest.graph_json` of each model by name."""

    log: str = ""
    pictures: Mapping[str, Any] = field(default_factory=dict)


def read_background(cache: ReadCache, found: Verdict) -> Background:
    """Return the drawings, and the log of a cell that is not verified. Where an earlier step failed, return the log of
    that step: the log of verify belongs to an earlier run, and so do the drawings where the export failed."""
    blocked, paths = found.blocked_by, cache.paths
    log = ""
    if found.outcome != "verified":
        log = _end(paths.log(f"{blocked.group}:{blocked.name}" if blocked else f"verify:{found}"))
    pictures = None
    if not (blocked and blocked.group == "export"):
        with suppress(FileNotFoundError, ValueError):
            pictures = cache.drawings(paths.graph_drawings(found.op, found.lowering, found.cell))
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


MOST = 20
"""Records in the page. The verdicts have all failing cases."""
CHECKS = ("kernel", "search", "gradient")  # that compare numbers
_MOST_FILES = 60  # that are read: not each failing case has a record

_EVERY = ""  # in place of a case: a check's record names none, so that it has all in its file


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
        for c in found.results.of(*WRONG):
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
