"""Time an operator and its peers, or its build and the one at another revision. Plain `doit` leaves it out, because
times are no verdict."""

from __future__ import annotations

import ctypes
import fnmatch
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from opmatrix.addons.bench import against, measure, read, records
from opmatrix.addons.bench.forked import REMEDY, DiedError, Forked, Record, StoppedError
from opmatrix.addons.bench.measure import Job
from opmatrix.basics.errors import BenchError, UsageError, did_you_mean, many, printable
from opmatrix.bench.spec import Row
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.project import cpu_levels
from opmatrix.project.paths import Paths
from opmatrix.project.settings import step_limits


def run(
    paths: Paths,
    operator: Operator,
    *,
    budget: float,
    threads: Sequence[int] | None = None,
    rows: Sequence[str] | None = None,
    compile: bool = True,
    rev: str = "",
    commit: str = "",
) -> None:
    """Print and write the times. Raises BenchError for a row that cannot be timed, and for a slower one."""
    if not budget > 0:
        raise UsageError(f"--budget takes seconds above 0, found {budget:g}")
    _require_end(paths, operator)
    bench, source = read.read(paths, operator)
    found = measure.processors()
    if rows:
        bench = replace(bench, rows=chosen(bench.rows, rows, operator.name))
    os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(paths.bench_inductor), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    job = Job(
        paths=paths,
        operator=operator,
        bench=bench,
        budget=budget,
        processors=found,
        threads=_thread_counts(threads, found.thread_counts),
        compile=compile,
        seconds=step_limits(paths).seconds,
        cpu_level=_cpu_level(paths, operator),
    )
    if found.why_not_pinned:
        print(f"threads cannot be pinned to processors here: {found.why_not_pinned}; expect more noise")
    try:
        if rev:
            _against(job, rev=rev, commit=commit)
        else:
            _with_peers(job, source=source)
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None


def _require_end(paths: Paths, operator: Operator) -> None:
    """Raise BenchError where bench.py, or its function for bytes or FLOPs, does not return in time or ends its process.

    What is wrong with its values, the caller finds."""
    path = paths.bench(operator.name).relative_to(paths.root)

    def start() -> Callable[[object], None]:
        null = os.open(os.devnull, os.O_WRONLY)
        for output in (1, 2):  # the caller prints it
            os.dup2(null, output)
        return read_once

    def read_once(_: object) -> None:
        with suppress(Exception):
            read.read(paths, operator)

    try:
        with Forked(start, seconds=step_limits(paths).seconds) as process:
            process.ask(None, what=str(path))
    except StoppedError as error:
        raise BenchError(f"{error}. {REMEDY}") from None
    except DiedError as error:
        raise BenchError(f"{path}: the process that read it {error}") from None


def chosen(rows: Sequence[Row], patterns: Sequence[str], name: str) -> tuple[Row, ...]:
    """Return the rows that match one of the patterns. Raises UsageError for a pattern that matches none."""
    names = [row.name for row in rows]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            there = ", ".join(names)
            raise UsageError(f"{name} has no row {pattern!r}{did_you_mean(pattern, names)}; rows: {there}")
    return tuple(row for row in rows if any(fnmatch.fnmatch(row.name, pattern) for pattern in patterns))


def _thread_counts(asked: Sequence[int] | None, possible: Sequence[int]) -> tuple[int, ...]:
    for count in asked or ():
        if not 1 <= count <= possible[-1]:
            raise UsageError(f"--threads: found {count}, allowed: 1 to {possible[-1]}, the processors of this process")
    return tuple(dict.fromkeys(asked or possible))


def _cpu_level(paths: Paths, operator: Operator) -> str | None:
    """Return the level at which the kernels run in this environment; None where they have no levels."""
    specs = [operator.spec, *(load_operator(paths, name).spec for name in operator.spec.uses)]
    library = paths.ort_library(operator.name)
    if not any(spec.cpu_levels for spec in specs) or not library.is_file():
        return None
    with Forked(lambda: lambda _: ctypes.CDLL(str(library)).opmatrix_cpu_level(0)) as process:
        level = process.ask(None)
    return cpu_levels.name(level) if level else None  # a call says what is wrong with OPMATRIX_CPU_LEVEL


def _with_peers(job: Job, *, source: str) -> None:
    name, made = job.operator.name, []
    print(f"{name}: rows of {source}; {', '.join(filter(None, (measure.processor(), job.cpu_level)))}")
    for line in records.LEGEND:
        print(f"  {line}")
    for row in measure.measured(job):
        made.append(row)
        print("\n".join(map(printable, records.shown(row))), flush=True)
    path = job.paths.bench_record(name)
    measured = {"source": source, "budget": job.budget, "rows": made}
    records.write(path, records.head(job, measure.processor()) | measured)
    print(path.relative_to(job.paths.root))
    _require_timed(name, made)


def _require_timed(name: str, rows: Sequence[Record]) -> None:
    """Raise BenchError for rows in which no library of the operator could be timed."""
    wrong = [
        f"{name}: {row['name']}, {many(row['threads'], 'thread')}: {row['failed']}" for row in rows if row["failed"]
    ]
    for row in rows:
        ours = [one for one in row.get("contestants", ()) if one["ours"] or one["name"] in list(read.OWN)[:2]]
        if ours and all(one["skipped"] for one in ours):
            wrong.append(f"{name}: {row['name']}: {'; '.join(dict.fromkeys(one['skipped'] for one in ours))}")
    if wrong:
        raise BenchError("\n".join(dict.fromkeys(wrong)))


def _against(job: Job, *, rev: str, commit: str) -> None:
    name, paths = job.operator.name, job.paths
    builds = [against.Build(paths=paths, operator=job.operator)]
    for root in (paths.bench_again(name), paths.bench_shadow(name)):
        shadow = Paths(root)
        builds.append(against.Build(paths=shadow, operator=load_operator(shadow, name)))
    print(printable(records.against_head(name, rev=rev, commit=commit)), flush=True)
    rows = []
    for row in against.compared(job, builds):  # each takes up to a minute
        rows.append(row)
        print(printable(records.against_line(row)), flush=True)
    path = paths.bench_against(name)
    compared = {"rev": rev, "commit": commit, "against": rows}
    records.write(path, records.head(job, measure.processor()) | compared)
    print(path.relative_to(paths.root))
    if slower := records.slower(rows):
        raise BenchError(
            f"{name} is slower than at {rev} in {many(len(slower), 'row')}, beyond the noise of this run: "
            f"{'; '.join(slower)}"
        )
    if failed := [row for row in rows if row["failed"]]:
        raise BenchError("\n".join(f"{name}: {row['name']}: {row['failed']}" for row in failed))
    if not [row for row in rows if not row.get("skipped")]:
        raise BenchError(f"{name}: no row can be timed in both builds: {rows[0]['skipped']}")
