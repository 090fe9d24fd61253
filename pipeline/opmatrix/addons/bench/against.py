"""Time two builds of an operator in turns, and find rows that are slower. A generation is three processes: this build,
a copy of it, and the build of the revision. What stays the same in a process, such as the addresses of its memory,
changes its times by some percent, so a row is judged by several generations."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from opmatrix.addons.bench.contestants import Entrants
from opmatrix.addons.bench.forked import Forked, Prepared, Record, Side
from opmatrix.addons.bench.measure import Job, of_each_row
from opmatrix.addons.bench.statistics import FIRST, LAST, Slowdown, slowdown
from opmatrix.addons.bench.turns import Expected, Turns
from opmatrix.bench.spec import Row
from opmatrix.data.arrays import Array
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths

ROUNDS = 31
"""Rounds of a generation; fewer where a call is slow."""
_GENERATION = 3.0  # seconds that the batches of a generation should take at most
_SIDES: tuple[Side, ...] = ("torch", "onnxruntime")
_BUDGETS = 10  # times the budget of a row, after which a suspicious row remains undecided

NEW, AGAIN, OLD = range(3)
_SHOWN = ("this build", "its copy", "the revision")
_OPERATORS = tuple(f"the operator of {one}" for one in _SHOWN)


@dataclass(frozen=True, kw_only=True)
class Build:
    """The operator of one process, and the project in which its libraries are."""

    paths: Paths
    operator: Operator


@dataclass(kw_only=True)
class Seen:
    """The times of one row in each generation, by side."""

    changes: dict[Side, list[float]] = field(default_factory=lambda: {side: [] for side in _SIDES})
    noises: dict[Side, list[float]] = field(default_factory=lambda: {side: [] for side in _SIDES})
    seconds: dict[Side, list[float]] = field(default_factory=lambda: {side: [] for side in _SIDES})
    skipped: dict[Side, str] = field(default_factory=dict)

    def judged(self, *, rows: int) -> dict[Side, Slowdown]:
        """Return the judgement of each side that was timed."""
        return {
            side: slowdown(self.changes[side], self.noises[side], rows=rows)
            for side in _SIDES
            if len(self.changes[side]) > 1
        }


def compared(job: Job, builds: Sequence[Build]) -> Iterator[Record]:
    """Yield a record for each row, number of threads and library; `builds` are this one, its copy, and the old one."""
    rows = len(job.bench.rows) * len(job.threads) * len(_SIDES)

    def time_row(number: int, row: Row, arrays: Sequence[Array]) -> Callable[[int], Iterable[Record]]:
        return partial(_row, job, builds, row, arrays, rows=rows, seed=number)

    return of_each_row(job, time_row, whose="a")


def _row(
    job: Job, builds: Sequence[Build], row: Row, arrays: Sequence[Array], threads: int, *, rows: int, seed: int
) -> Iterator[Record]:
    seen, chance, end = Seen(), random.Random(seed), time.monotonic() + _BUDGETS * job.budget
    judged: Mapping[Side, Slowdown] = {}
    for count in range(1, LAST + 1):
        generation(job, builds, row, arrays, threads, seen, chance)
        if count < 2:
            continue
        # What is slower at the first look remains so: the second one has a level of its own.
        judged = {**seen.judged(rows=rows), **{side: one for side, one in judged.items() if one.slower}}
        if count >= FIRST and (not any(one.undecided for one in judged.values()) or time.monotonic() > end):
            break
        if not judged:
            break
    for side in _SIDES:
        if one := judged.get(side):
            yield {"side": side, "skipped": "", "seconds": statistics.median(seen.seconds[side]), **asdict(one)}
        elif side in seen.skipped:
            yield {"side": side, "skipped": seen.skipped[side]}


def generation(
    job: Job,
    builds: Sequence[Build],
    row: Row,
    arrays: Sequence[Array],
    threads: int,
    seen: Seen,
    chance: random.Random,
) -> None:
    """Start a process of each build, time the libraries in turns, and add the medians of the ratios to `seen`."""
    pinned = job.processors.of(threads)

    def start(build: Build) -> Turns:
        entrants = Entrants(
            paths=build.paths, operator=build.operator, bench=job.bench, row=row, arrays=arrays, threads=threads
        )
        return Turns(entrants, processors=pinned, expected=Expected(outputs={}), measures=False)

    order = [*range(len(builds))]
    chance.shuffle(order)  # of the starts, too
    with ExitStack() as stack:
        processes: dict[int, Any] = {}
        prepared: dict[int, list[Prepared]] = {}
        for n in order:
            processes[n] = stack.enter_context(Forked(partial(start, builds[n]), seconds=job.seconds))
            prepared[n] = processes[n].ask(("ours",), what=_OPERATORS[n])
        for side in _SIDES:
            numbers = {n: i for n in order for i, one in enumerate(prepared[n]) if one.side == side}
            if lacking := [n for n in order if n not in numbers]:
                if numbers:
                    seen.skipped[side] = f"{_SHOWN[lacking[0]]} has no such library"
                continue
            found = {n: prepared[n][i] for n, i in numbers.items()}
            if skipped := [f"{_SHOWN[n]}: {one.skipped}" for n, one in found.items() if one.skipped]:
                seen.skipped[side] = skipped[0]
                continue
            calls = max(one.calls for one in found.values())
            seconds: dict[int, list[float]] = {n: [] for n in order}
            started = time.monotonic()
            for count in range(ROUNDS):
                chance.shuffle(order)
                for n in order:
                    seconds[n].append(processes[n].ask(("time", numbers[n], calls), what=_OPERATORS[n]) / calls)
                if count >= 2 and time.monotonic() - started > _GENERATION:
                    break
            seen.changes[side].append(_median_log(seconds[NEW], seconds[OLD]))
            seen.noises[side].append(_median_log(seconds[AGAIN], seconds[NEW]))
            seen.seconds[side].append(statistics.median(seconds[NEW]))


def _median_log(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(math.log(a / b) for a, b in zip(above, below, strict=True))
