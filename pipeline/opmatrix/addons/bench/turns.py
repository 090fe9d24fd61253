"""The forked process of a row: prepare contestants, then time one of them when the parent asks for it."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opmatrix.addons.bench import accuracy
from opmatrix.addons.bench.contestants import Contestant, Entrants, SkippedError
from opmatrix.addons.bench.forked import Errors, Prepared, Side
from opmatrix.basics.errors import one_line
from opmatrix.data.arrays import Array
from opmatrix.spec import Tolerance

BATCH = 0.004
"""The least seconds of a batch: much more than reading the clock and switching between contestants take."""
_LONGEST_REASON = 200


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The truth of a row: outputs by name, or why there is none."""

    outputs: Mapping[str, Array]
    precision: str = ""
    problem: str = ""


class Turns:
    """Serves one row in a forked process, pinned to `processors`. On one thread it counts CPU time, so that another
    program on the processor does not count; on several, time that passes."""

    def __init__(self, entrants: Entrants, *, processors: Collection[int], expected: Expected, measures: bool) -> None:
        self._entrants, self._expected, self._measures = entrants, expected, measures
        self._calls: list[Callable[[int], float]] = []
        self._clock = time.process_time if entrants.threads == 1 else time.perf_counter
        if processors:
            os.sched_setaffinity(0, processors)
        torch.set_num_threads(entrants.threads)
        torch.set_grad_enabled(False)

    def __call__(self, message: Sequence[Any]) -> Any:
        """Answer ``("ours",)`` with a list of Prepared, ``("prepare", contestant)`` with one, and
        ``("time", contestant, calls)`` with the seconds of that many calls."""
        match message:
            case ("ours",):
                return [self._prepared(*one) for one in self._entrants.ours()]
            case ("prepare", index):
                return self._prepared(*[*self._entrants.ours(), *self._entrants.peers()][index])
            case ("time", index, calls):
                return self._calls[index](calls)
        raise ValueError(message)

    def _prepared(self, name: str, side: Side, make: Callable[[], Contestant]) -> Prepared:
        try:
            found = make()
            results = found.outputs(found.call())
            errors = self._errors(results) if self._measures else None
            moved = sum(a.nbytes for a in (*self._entrants.arrays, *results.values())) if found.ours else 0
            del results
            if side == "onnxruntime":
                found = make()  # of the first session the arena has kept the memory
            peak_memory = accuracy.peak(found.call) if self._measures else None
            batch = self._timed(found.call)
            calls = calibrated(batch)
        except SkippedError as error:
            return self._absent(name, side, str(error))
        except Exception as error:  # a peer may raise anything
            return self._absent(name, side, f"{type(error).__name__}: {one_line(error)}"[:_LONGEST_REASON])
        self._calls.append(batch)
        return Prepared(
            name=name, side=side, ours=found.ours, calls=calls, moved=moved, peak_memory=peak_memory, errors=errors
        )

    def _absent(self, name: str, side: Side, why: str) -> Prepared:
        self._calls.append(lambda _: 0.0)
        return Prepared(name=name, side=side, skipped=why)

    def _errors(self, results: Mapping[str, Array]) -> Errors:
        if self._expected.problem:
            return Errors(problem=self._expected.problem)
        spec = self._entrants.operator.spec
        declared = spec.tolerances.get("custom") or next(iter(spec.tolerances.values()))
        tolerances: dict[str, Tolerance] = {str(dtype): tolerance for dtype, tolerance in declared.items()}
        return accuracy.errors(results, self._expected.outputs, tolerances)

    def _timed(self, call: Callable[[], Any]) -> Callable[[int], float]:
        clock = self._clock

        def batch(calls: int) -> float:
            if calls > 1:
                call()  # brings back what the contestant before took from caches, and ends what its threads still do
            start = clock()
            for _ in itertools.repeat(None, calls):
                call()
            return clock() - start

        return batch


def calibrated(batch: Callable[[int], float], *, least: float = BATCH) -> int:
    """Return how many calls take `least` seconds: as timeit and pyperf do, from 1 on until a batch is long enough."""
    calls = 1
    while (seconds := min(batch(calls), batch(calls))) < least:
        if seconds > least / 8:
            return max(calls + 1, round(calls * least / seconds))
        calls *= 4
        if calls > 1 << 24:  # of a clock that does not advance
            return calls
    return calls
