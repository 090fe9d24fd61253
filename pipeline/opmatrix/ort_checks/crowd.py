"""Run inputs in several threads of one session, and compare each run with the run alone as soon as it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from threading import Barrier
from time import monotonic

import numpy as np

from opmatrix import step_log
from opmatrix.ort_checks.sessions import RefusedError, Session, call
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import EXACT, Comparison, compare

THREADS = 4
ROUNDS = 8
SECONDS = 0.05
MOST_BYTES = 1 << 28  # of the outputs that all threads have at once; two threads run in any case
_CHUNK = 1 << 20  # elements that are compared at once: a comparison takes several times their memory

Feed = Mapping[str, Array]
Outputs = tuple[Array, ...]


def run_concurrently(
    session: Session, feeds: Mapping[str, Feed], *, seconds: float = 0.0
) -> dict[str, Comparison | str]:
    """Run each feed alone, then all in several threads; return the difference or the error by the feed's name.

    Each thread begins with another feed, so that a buffer which the calls share holds the values of another feed. It
    keeps no outputs, and of each feed the first difference. A feed that fails alone is left out. Without a difference
    there are `ROUNDS` rounds, more until `seconds` have passed, and fewer after `SECONDS`.
    """
    alone: dict[str, Outputs] = {}
    for name, feed in feeds.items():
        step_log.now_running(f"case {name}")
        if not isinstance(outputs := _outputs_or_error(session, feed), str):
            alone[name] = outputs
    if not alone:
        return {}
    threads = _threads(max(sum(array.nbytes for array in outputs) for outputs in alone.values()))
    step_log.now_running(f"{', '.join(alone)} in {threads} threads at once")
    names, start = list(alone), Barrier(threads)

    def run(thread: int) -> dict[str, Comparison | str]:
        found: dict[str, Comparison | str] = {}
        first = thread % len(names)
        start.wait()
        begin = monotonic()
        for turn in count(1):
            for name in names[first:] + names[:first]:
                if difference := _difference(session, feeds[name], alone[name]):
                    found.setdefault(name, difference)
            passed = monotonic() - begin
            if found or passed > SECONDS or (turn >= ROUNDS and passed >= seconds):
                break
        return found

    with ThreadPoolExecutor(threads) as pool:
        by_thread = [*pool.map(run, range(threads))]
    return {name: difference for found in reversed(by_thread) for name, difference in found.items()}


def _threads(size: int) -> int:
    """Return the number of threads for runs whose outputs have up to `size` bytes."""
    return max(2, min(THREADS, MOST_BYTES // max(size, 1)))


def _difference(session: Session, feed: Feed, alone: Outputs) -> Comparison | str | None:
    """Run a feed once; return the error, or the first difference. The outputs are freed on return."""
    outputs = _outputs_or_error(session, feed)
    if isinstance(outputs, str):
        return outputs
    found = (_first_difference(a, b) for a, b in zip(outputs, alone, strict=True))
    return next(filter(None, found), None)


def _first_difference(actual: Array, expected: Array) -> Comparison | None:
    """Return the comparison of the first part in which two arrays differ, with indices of the whole, or None."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return compare(actual, expected, tolerance=EXACT)
    a, e = actual.ravel(), expected.ravel()
    for begin in range(0, e.size, _CHUNK):
        found = compare(a[begin : begin + _CHUNK], e[begin : begin + _CHUNK], tolerance=EXACT)
        if not found.ok and found.worst and found.first:
            at, first = (np.unravel_index(begin + index[0], expected.shape) for index in (found.worst, found.first))
            return replace(found, worst=tuple(map(int, at)), first=tuple(map(int, first)))
    return None


def _outputs_or_error(session: Session, feed: Feed) -> Outputs | str:
    try:
        return call(session, feed)
    except RefusedError as error:
        return str(error)
