"""The forked process of a row: prepare contestants, measure the errors of their outputs and the peak memory of a call,
then time one of them when the parent asks for it."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opmatrix.addons.bench.contestants import Entrant, Entrants, SkippedError
from opmatrix.addons.bench.forked import Errors, Prepared
from opmatrix.basics.errors import one_line
from opmatrix.data.arrays import Array, rounded
from opmatrix.data.case_arrays import reference_attributes
from opmatrix.data.compare import EXACT, blocks_of
from opmatrix.data.reference import Reference, widened
from opmatrix.data.truth import declared_judge
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments
from opmatrix.project.paths import Paths
from opmatrix.spec import Model, Tolerance

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
                return [self._prepared(one) for one in self._entrants.all() if one.ours]
            case ("prepare", index):
                return self._prepared([*self._entrants.all()][index])
            case ("time", index, calls):
                return self._calls[index](calls)
        raise ValueError(message)

    def _prepared(self, entrant: Entrant) -> Prepared:
        name, side, make, ours = entrant
        try:
            found = make()
            results = found.outputs(found.call())
            errors_of = self._errors(results) if self._measures else None
            moved = sum(a.nbytes for a in (*self._entrants.arrays, *results.values())) if ours else 0
            del results
            if side == "onnxruntime":
                found = make()  # of the first session the arena has kept the memory
            peak_memory = peak(found.call) if self._measures else None
            batch = self._timed(found.call)
            calls = calibrated(batch)
        except SkippedError as error:
            why = str(error)
        except Exception as error:  # a peer may raise anything
            why = f"{type(error).__name__}: {one_line(error)}"[:_LONGEST_REASON]
        else:
            self._calls.append(batch)
            return Prepared(
                name=name, side=side, ours=ours, calls=calls, moved=moved, peak_memory=peak_memory, errors=errors_of
            )
        self._calls.append(lambda _: 0.0)
        return Prepared(name=name, side=side, skipped=why)

    def _errors(self, results: Mapping[str, Array]) -> Errors:
        if self._expected.problem:
            return Errors(problem=self._expected.problem)
        spec = self._entrants.operator.spec
        declared = spec.tolerances.get("custom") or next(iter(spec.tolerances.values()))
        tolerances: dict[str, Tolerance] = {str(dtype): tolerance for dtype, tolerance in declared.items()}
        return errors(results, self._expected.outputs, tolerances)

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


def truth(paths: Paths, operator: Operator, model: Model, arrays: Sequence[Array]) -> tuple[dict[str, Array], str]:
    """Return the outputs by name, not rounded to their dtypes, and the precision in which they were evaluated.

    Where outputs jump, that is the declared dtype. Raises DataError where the reference raises.
    """
    spec, reference = operator.spec, Reference(paths, operator.spec)
    inputs = [*case_arguments(spec, model.cases[0], arrays)]
    attributes = reference_attributes(spec, model)
    precision = declared_judge(spec, model.types).precision
    if precision == "declared dtype":
        outputs = reference(inputs, attributes)
    else:
        with np.errstate(all="ignore"):
            outputs = reference.raw(widened(inputs, precision), attributes)
    return {part.name: output for part, output in zip(spec.outputs, outputs, strict=False)}, precision


def errors(actual: Mapping[str, Array], expected: Mapping[str, Array], tolerances: Mapping[str, Tolerance]) -> Errors:
    """Return the errors of those outputs that a contestant has; `tolerances` are by dtype of the actual output."""
    found: list[Errors] = []
    for name, made in actual.items():
        if (wanted := expected.get(name)) is None:
            continue
        if made.shape != wanted.shape:
            return Errors(output=name, problem=f"output {name!r} has the shape {made.shape}, the truth {wanted.shape}")
        if made.dtype.kind in "OU":
            continue
        tolerance = tolerances.get(str(made.dtype), EXACT)
        blocks = [_error(a, e, tolerance) for _, a, e in blocks_of(made, wanted)]
        absolute, used = (max(values) for values in zip(*blocks, strict=True))
        one = Errors(output=name, absolute=absolute, tolerance_used=used)
        if used and str(made.dtype) not in tolerances and made.dtype.kind not in "biu":
            one = Errors(output=name, absolute=absolute, problem=f"the operator has no tolerance for {made.dtype}")
        found.append(one)
    no_output = Errors(problem="it has no output that the truth has")
    return max(found, key=lambda one: math.inf if one.problem else one.tolerance_used or 0.0, default=no_output)


def _error(block: Array, wanted: Array, tolerance: Tolerance) -> tuple[float, float]:
    """Return the largest absolute error of a block, and the largest fraction of the tolerance; inf where only one is
    finite.

    The fraction is that of the verdicts: the truth is rounded to the dtype of the output first.
    """
    wide: Any = np.longdouble
    with np.errstate(all="ignore"):
        actual, exact, truth = block.astype(wide), wanted.astype(wide), rounded(wanted, block.dtype).astype(wide)
        same = (actual == truth) | (np.isnan(actual) & np.isnan(truth))
        beyond = np.where(np.isfinite(actual) & np.isfinite(truth), np.abs(actual - truth), np.inf)
        limit = tolerance.atol + tolerance.rtol * np.abs(truth)
        used = np.where(same, 0, np.where(np.isfinite(beyond) & (limit > 0), beyond / limit, np.inf))
        error = np.where(np.isfinite(actual) & np.isfinite(exact), np.abs(actual - exact), np.where(same, 0, np.inf))
    return (float(error.max()), float(used.max())) if error.size else (0.0, 0.0)


_RESET = "5"  # resets the peak of the resident set, VmHWM: proc_pid_clear_refs(5)


def peak(call: Callable[[], Any]) -> int | None:
    """Return by how many bytes one call raises the peak, or None where the peak cannot be reset.

    Inputs are resident before. Free memory of earlier calls is returned to Linux first, so that outputs and temporary
    memory of the call count. A page is the smallest unit.
    """
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text(_RESET, encoding="utf-8")
        before = _status("VmRSS")
        result = call()
        after = _status("VmHWM")
    except OSError:
        return None
    del result
    return max(0, after - before)


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status has no {name}")
    return int(found[1]) * 1024
