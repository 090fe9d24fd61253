"""The failing cases whose errors the HTML page shows: few, since each takes up to 30 kB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from opmatrix.project.paths import Paths
from opmatrix.verdict import DRAWN_INPUTS, WRONG, CheckRecord, Found, Verdict

MOST = 20
"""Records in the page. The verdicts have all failing cases."""
CHECKS = ("kernel", "search", "gradient")  # that compare numbers
_MOST_FILES = 60  # that are read: not each failing case has a record

_EVERY = ""  # in place of a case: a check's record names none, so that it has all in its file


def read(layout: Paths, verdicts: Iterable[Verdict], checks: Iterable[CheckRecord]) -> dict[str, Any]:
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
        path = layout.mismatches(_record(layout, found))
        if len(records) >= MOST or (path not in files and len(files) >= _MOST_FILES):
            continue
        if path not in files:
            files[path], all_cases = _read(path)
            if all_cases:
                over.setdefault((found.op, _kind(found)), all_cases)
        for name in files[path] if case == _EVERY else files[path].keys() & {case}:
            for other, _ in groups[key]:
                shown.setdefault(str(other), {})[name] = len(records)
            kind = (found.op, _kind(found))
            of = [*over].index(kind) if kind in over else None
            records.append({"of": str(found), "over": of, **files[path][name]})
    failing = sum(map(len, groups.values()))
    return {"records": records, "shown": shown, "failing": failing, "over": [*over.values()]}


def _failing(verdicts: Iterable[Verdict], checks: Iterable[CheckRecord]) -> Iterator[tuple[Found, str, str]]:
    """Yield the failing cases that may have a record, as ``case/model``, each with its message."""
    for found in verdicts:
        for c in found.results.of(*WRONG):
            if c.outcome == "mismatched" or c.case == DRAWN_INPUTS:
                yield found, f"{c.case}/{c.model}", c.detail
    for check in checks:
        if check.outcome == "failed" and check.check in CHECKS and not check.blocked_by:
            yield check, _EVERY, check.detail


def _record(layout: Paths, found: Found) -> Path:
    """Return the file of a verdict or of a check record."""
    return layout.verdict(*found.key) if isinstance(found, Verdict) else layout.check_record(*found.key)


def _kind(found: Found) -> str:
    return found.lowering if isinstance(found, Verdict) else found.check


def _read(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the records in a file by ``case/model``, and what it has of all cases; none where it is missing or
    damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {f"{one['case']}/{one['model']}": one for one in content["mismatches"]}, content.get("over") or {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}, {}
