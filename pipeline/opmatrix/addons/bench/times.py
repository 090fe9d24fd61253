"""What `doit bench` measured, for the page: only while the files are those that were timed. Imports nothing of
`opmatrix.bench`, whose edits would make the report run again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import one_line
from opmatrix.basics.files import sha256
from opmatrix.project.paths import Paths

SCHEMA = 2
"""Of bench.json: `opmatrix.addons.bench.records.SCHEMA`, a test compares both."""

Times = dict[str, Any]


def read_all(paths: Paths, operators: Iterable[str]) -> list[Times]:
    """Return a record for each operator that was timed: ``op``, ``problem``, which says why there are no times or is
    empty, and what `_times` returns."""
    if not paths.bench_record("any").parents[1].is_dir():  # most projects
        return []
    records = []
    for name in sorted(operators):
        path = paths.bench_record(name)
        try:
            records.append({"op": name, "problem": "", **_read(path, paths.root, name)})
        except FileNotFoundError:
            continue
        except OSError as error:
            records.append(_without(name, f"{path.relative_to(paths.root)}: {error.strerror}"))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else one_line(error)
            records.append(_without(name, f"{path.relative_to(paths.root)} is damaged: {why}"))
    return records


def _without(name: str, problem: str) -> Times:
    return {"op": name, "problem": f"{problem}. Run: doit bench {name}"}


def _read(path: Path, root: Path, name: str) -> Times:
    """Return the times in a file, or the problem with them. Raises an error for a damaged file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["schema"] != SCHEMA:
        return _without(
            name, f"the times are in another format: schema {data['schema']!r}, this opmatrix reads {SCHEMA}"
        )
    if data["op"] != name:
        raise ValueError(f"it has the times of {data['op']!r}")
    digests = {file: sha256(root / file) if (root / file).is_file() else "" for file in data["files"]}
    if old := [file for file, digest in data["files"].items() if digest != digests[file]]:
        return _without(name, f"the times of {str(data['date'])[:10]} are of other files: {', '.join(sorted(old))}")
    return _times(data)


def _times(data: Mapping[str, Any]) -> Times:
    """Return what the page shows of bench.json; numbers have four digits."""
    machine = data["machine"]
    return {
        "date": str(data["date"]),
        "processor": str(machine["processor"]),
        "processors": _number(machine["processors"]),
        "not_pinned": str(machine["not_pinned"]),
        "versions": {str(name): str(version) for name, version in data["versions"].items()},
        "rows": [_row(row) for row in data["rows"]],
    }


def _row(row: Mapping[str, Any]) -> Times:
    dtypes = {str(name): str(dtype) for name, dtype in row["types"].items()}
    one = len({*dtypes.values()}) == 1
    dtype = ", ".join({*dtypes.values()} if one else (f"{name}={dtype}" for name, dtype in dtypes.items()))
    head = {"name": str(row["name"]), "dtype": dtype, "threads": _number(row["threads"]), "failed": str(row["failed"])}
    if row["failed"]:
        return head
    return {
        **head,
        **{key: _number(row[key]) for key in ("bytes", "rounds")},
        "flops": _optional(row["flops"]),
        "clock": str(row["clock"]),
        "ended": str(row["ended"]),
        "contestants": [
            {
                "name": str(one["name"]),
                "ours": bool(one["ours"]),
                "skipped": str(one["skipped"]),
                "seconds": None if one["seconds"] is None else _interval(one["seconds"]),
                "tolerance_used": _optional(one["error"] and one["error"]["tolerance_used"]),
                "peak_memory": _optional(one["peak_memory"]),
            }
            for one in row["contestants"]
        ],
        "ratios": [{"ours": str(r["ours"]), "peer": str(r["peer"]), "ratio": _interval(r)} for r in row["ratios"]],
    }


def _interval(interval: Mapping[str, Any]) -> list[float]:
    if interval["median"] == 0:
        raise ValueError("found a median of 0, allowed: a number above 0")
    return [_number(interval[key]) for key in ("median", "low", "high")]


def _optional(value: object) -> float | None:
    return None if value is None else _number(value)


def _number(value: object) -> float:
    """Return a number with four digits. JSON of the page has no NaN and no infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"found {value!r}, allowed: a number from 0 on")
    return value if isinstance(value, int) else float(f"{value:.4g}")
