"""What `doit bench` writes, as JSON that bench.schema.json describes, and prints, in 80 columns. Pure."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from opmatrix.addons.bench import statistics
from opmatrix.addons.bench.forked import Record
from opmatrix.basics.errors import many
from opmatrix.basics.files import digests_by_path, write_text
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed

if TYPE_CHECKING:
    from opmatrix.addons.bench.measure import Job

SCHEMA = 2
_LONGEST = 22  # characters of a name in a table


def head(job: Job, processor: str) -> Record:
    """Return what bench.json and against.json begin with."""
    return {
        "schema": SCHEMA,
        "op": job.operator.name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": processor,
            "processors": len(job.processors.allowed),
            "not_pinned": job.processors.why_not_pinned,
        },
        "cpu_level": job.cpu_level,
        "versions": asdict(installed()),
        "files": files(job.paths, job.operator.name),
    }


def files(paths: Paths, name: str) -> dict[str, str]:
    """Return the digests of the files on which the times of an operator depend, by their paths."""
    own = sorted(path for path in paths.op(name).glob("*.py"))
    compiled = [path for path in [paths.compiled_record(name)] if path.is_file()]
    return digests_by_path([*own, *paths.own_sources(name), *compiled], paths.root)


def write(path: Path, document: Record) -> None:
    """Write a document."""
    write_text(path, json.dumps(document, indent=1) + "\n")


def shown(row: Record) -> Iterator[str]:
    """Yield the lines of a row: what it moves, and a line for each contestant."""
    threads = many(row["threads"], "thread")
    if row["failed"]:
        yield f"{row['name']}, {threads}: failed: {row['failed']}"
        return
    flops = f", {number(row['flops'])}FLOP" if row["flops"] is not None else ""
    ended = "narrow after" if row["ended"] == "narrow" else "budget spent:"
    few = " (too few)" if row["rounds"] < statistics.FEWEST else ""
    yield f"{row['name']}, {threads}: {number(row['bytes'])}B{flops}"
    yield f"  {ended} {many(row['rounds'], 'round')}{few}"
    yield f"  {'':{_LONGEST}} {'time':>8} {'ours/peer':>15} {'peak':>7} {'error':>8}"
    ratios = {ratio["peer"]: ratio for ratio in row["ratios"]}
    for one in row["contestants"]:
        name = one["name"] if len(one["name"]) <= _LONGEST else f"{one['name'][: _LONGEST - 1]}~"
        if one["skipped"]:
            yield f"  {name:{_LONGEST}} skipped: {one['skipped']}"
            continue
        compared, error, spread = ratios.get(one["name"]), one["error"], ""
        if compared:
            width = (compared["high"] - compared["low"]) / 2 / compared["median"]
            spread = f"{compared['median']:.3f} +-{width:5.1%}"
        used = "-" if not error or error["tolerance_used"] is None else f"{error['tolerance_used']:.2g}"
        peak = "-" if one["peak_memory"] is None else f"{number(one['peak_memory'])}B"
        yield (f"  {name:{_LONGEST}} {number(one['seconds']['median']) + 's':>8} {spread:>15} {peak:>7} {used:>8}")
    for reason in dict.fromkeys(
        one["error"]["problem"] for one in row["contestants"] if one["error"] and one["error"]["problem"]
    ):
        yield f"  no error measured: {reason}"


LEGEND = (
    "time: median of a call. ours/peer: below 1 the operator is faster (95% limits).",
    "peak: growth of memory in a call. error: the largest / the declared tolerance.",
)


def number(value: float) -> str:
    """Return a number with three digits and a prefix: ``1.23 m``, ``456 k``."""
    for power, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u")):
        if abs(value) >= power * 0.9995:
            return f"{value / power:.3g} {prefix}"
    return f"{value / 1e-9:.3g} n" if value else "0 "


def against_head(name: str, *, rev: str, commit: str) -> str:
    """Return the first lines of the table of a comparison with a revision."""
    return (
        f"{name} against {rev} ({commit[:12]}): time now / time then\n"
        f"  {'row':30} {'thr':>3} {'library':11} {'time':>8} {'ratio':>6} {'noise':>6}"
    )


def against_line(row: Record) -> str:
    """Return the line of a row in that table."""
    name = row["name"] if len(row["name"]) <= 30 else f"{row['name'][:29]}~"
    if why := row["failed"] or row.get("skipped"):
        return f"  {name:30} {row['threads']:>3} {row.get('side', ''):11} {why}"
    verdict = "SLOWER" if row["slower"] else "undecided" if row["undecided"] else ""
    return (
        f"  {name:30} {row['threads']:>3} {row['side']:11} {number(row['seconds']) + 's':>8} {row['ratio']:>6.3f} "
        f"{row['noise']:>6.1%} {verdict}"
    ).rstrip()


def slower(rows: Iterable[Record]) -> list[str]:
    """Return the rows that are slower, each with its ratio."""
    return [
        f"{row['name']} on {row['threads']} in {row['side']}: {row['ratio']:.2f} times"
        for row in rows
        if row.get("slower")
    ]
