"""Measure the rows of an operator on one thread and on all, and return a record for each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from opmatrix.addons.bench.contestants import Entrants
from opmatrix.addons.bench.forked import REMEDY, DiedError, Errors, Forked, Prepared, Record, StoppedError
from opmatrix.addons.bench.read import OWN, cost, model_of
from opmatrix.addons.bench.statistics import Interval, pairs, run
from opmatrix.addons.bench.turns import Expected, Turns, truth
from opmatrix.basics.errors import DataError, OpmatrixError, one_line
from opmatrix.bench.spec import Bench, Row
from opmatrix.data.arrays import Array
from opmatrix.data.case_arrays import case_arrays
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.spec import shape_of, tensors_of


@dataclass(frozen=True, kw_only=True)
class Processors:
    """The processors that this process may use, and why a thread cannot be pinned to one; "" if it can."""

    allowed: tuple[int, ...]
    why_not_pinned: str = ""

    def of(self, threads: int) -> tuple[int, ...]:
        """Return the processors for a process with this number of threads: for one thread the last one, because Linux
        itself prefers the first; none where it cannot be pinned."""
        if self.why_not_pinned:
            return ()
        return self.allowed[-1:] if threads == 1 else self.allowed

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """One, and the number of processors."""
        return tuple(dict.fromkeys((1, len(self.allowed))))


def processors() -> Processors:
    """Return the processors of this process, and try whether it may choose among them."""
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    try:
        os.sched_setaffinity(0, allowed)
    except OSError as error:  # a sandbox may forbid it
        return Processors(allowed=allowed, why_not_pinned=str(error.strerror))
    return Processors(allowed=allowed)


def processor() -> str:
    """Return the name of the processor, or "unknown", as where a container hides it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to time. `budget`: seconds for each row and number of threads. `seconds`: the time limit of each answer of a
    process. `cpu_level`: the level at which the kernels run; None where they are compiled once."""

    paths: Paths
    operator: Operator
    bench: Bench
    budget: float
    processors: Processors
    threads: tuple[int, ...]
    compile: bool = True
    seconds: float = 300
    cpu_level: str | None = None


def inputs(operator: Operator, row: Row) -> list[Array]:
    """Return the arrays of a row. Raises DataError for values that do not fit, or that the memory has no room for."""
    model = model_of(row)
    try:
        return case_arrays(operator.spec, model, model.cases[0])
    except MemoryError as error:
        raise DataError(f"{one_line(error) or 'not enough memory'}. Give the row smaller sizes") from error


TimeRow = Callable[[int, Row, Sequence[Array]], Callable[[int], Iterable[Record]]]
"""A function of the number of a row, the row and its arrays, which returns one of a number of threads."""


def of_each_row(job: Job, time_row: TimeRow, *, whose: str) -> Iterator[Record]:
    """Yield the records for each row and number of threads, up to one that does not return."""
    for number, row in enumerate(job.bench.rows):
        about = described(job.operator, row)
        try:
            arrays = inputs(job.operator, row)
        except OpmatrixError as error:
            yield about | {"threads": 1, "failed": one_line(error)}
            continue
        timed = time_row(number, row, arrays)
        for threads in job.threads:
            about |= {"threads": threads}
            try:
                yield from (about | record for record in timed(threads))
            except StoppedError as error:
                yield about | {"failed": f"{error}; later rows are left out. {REMEDY}"}
                return
            except DiedError as error:
                yield about | {"failed": f"{whose} process {error}"}


def measured(job: Job) -> Iterator[Record]:
    """Yield a record for each row and number of threads."""

    def time_row(_: int, row: Row, arrays: Sequence[Array]) -> Callable[[int], Iterable[Record]]:
        expected = _expected(job, row, arrays)
        entrants = partial(
            Entrants, paths=job.paths, operator=job.operator, bench=job.bench, row=row, arrays=arrays,
            compile=job.compile,
        )  # fmt: skip
        return lambda threads: [_row(job, entrants(threads=threads), expected)]

    return of_each_row(job, time_row, whose="its")


def described(operator: Operator, row: Row) -> Record:
    """Return name, dtypes and shapes of a row."""
    case = model_of(row).cases[0]
    shapes = {
        part.name: [list(shape_of(t)) for t in tensors] if part.variadic else list(shape_of(tensors[0]))
        for part in operator.spec.inputs
        if (tensors := tensors_of(case, part.name))
    }
    return {"name": row.name, "types": dict(row.types), "shapes": shapes, "failed": ""}


def _expected(job: Job, row: Row, arrays: Sequence[Array]) -> Expected:
    """Return the truth of a row, computed in a process of its own: a reference may take much memory."""
    if row.no_truth:
        return Expected(outputs={}, problem=row.no_truth)

    def evaluate(_: object) -> Any:
        try:
            return truth(job.paths, job.operator, model_of(row), arrays)
        except Exception as error:  # a user's reference may raise anything
            return one_line(error)

    try:
        with Forked(lambda: evaluate, seconds=job.seconds) as process:
            found = process.ask(None, what="the reference")
    except StoppedError as error:
        found = f"{error}. {REMEDY}, or give the row no_truth"
    except DiedError as error:
        found = f"the process of the reference {error}"
    if isinstance(found, str):
        return Expected(outputs={}, problem=found)
    outputs, precision = found
    return Expected(outputs=outputs, precision=precision)


def _row(job: Job, entrants: Entrants, expected: Expected) -> Record:
    def start() -> Turns:
        pinned = job.processors.of(entrants.threads)
        return Turns(entrants, processors=pinned, expected=expected, measures=True)

    peers = job.paths.bench(job.operator.name).relative_to(job.paths.root)

    def ask(message: Sequence[Any], name: str) -> Any:
        return process.ask(message, what=OWN.get(name, f"the peer {name!r} of {peers}"))

    with Forked(start, seconds=job.seconds) as process:
        names = [entrant.name for entrant in entrants.all()]
        prepared: list[Prepared] = [ask(("prepare", index), name) for index, name in enumerate(names)]
        spec, row = job.operator.spec, entrants.row
        moved = cost(spec, row, job.bench.bytes)
        if moved is None:
            moved = float(max((p.moved for p in prepared), default=0) or sum(a.nbytes for a in entrants.arrays))
        compared = pairs(prepared)
        rounds = run(
            prepared,
            lambda index, calls: float(ask(("time", index, calls), prepared[index].name)),
            budget=job.budget,
            narrow=compared,
        )
    flops = cost(spec, row, job.bench.flops)
    return {
        "bytes": moved,
        "flops": flops,
        "rounds": rounds.count,
        "ended": rounds.ended,
        "contestants": [
            _contestant(found, rounds.of(n) if found.calls else None, moved=moved, flops=flops)
            for n, found in enumerate(prepared)
        ],
        "ratios": [
            {"ours": prepared[a].name, "peer": prepared[b].name} | asdict(rounds.ratio(a, b)) for a, b in compared
        ],
        "clock": "cpu" if entrants.threads == 1 else "wall",
        "truth": {"precision": expected.precision, "problem": expected.problem},
    }


def _contestant(prepared: Prepared, seconds: Interval | None, *, moved: float, flops: float | None) -> Record:
    return {
        "name": prepared.name,
        "side": prepared.side,
        "ours": prepared.ours,
        "skipped": prepared.skipped,
        "seconds": asdict(seconds) if seconds else None,
        "bytes_per_second": moved / seconds.median if seconds else None,
        "flops_per_second": flops / seconds.median if seconds and flops is not None else None,
        "peak_memory": prepared.peak_memory,
        "error": _error(prepared.errors) if prepared.errors else None,
    }


def _error(errors: Errors) -> Record:
    """Return the errors, with None for a number that JSON cannot have."""
    infinite = errors.tolerance_used is not None and math.isinf(errors.tolerance_used)
    why = "an element is not finite, or differs where no error is allowed" if infinite else ""
    numbers = {
        name: value if value is not None and math.isfinite(value) else None
        for name, value in (("absolute", errors.absolute), ("tolerance_used", errors.tolerance_used))
    }
    return {"output": errors.output, **numbers, "problem": errors.problem or why}
