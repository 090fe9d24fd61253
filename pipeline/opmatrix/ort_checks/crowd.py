"""Run inputs in several threads of one session, and compare each run with the run alone as soon as it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier
from time import monotonic

from opmatrix import step_log
from opmatrix.ort_checks.cast_edges import CastSession
from opmatrix.ort_checks.sessions import RefusedError, Session, call
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import Comparison, first_difference

THREADS = 4
ROUNDS = 8
SECONDS = 0.05
MOST_BYTES = 1 << 28  # that the runs of all threads have at once; two threads run in any case

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
    threads = _threads(max(_bytes(session, feeds[name], outputs) for name, outputs in alone.items()))
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


def _bytes(session: Session, feed: Feed, outputs: Outputs) -> int:
    """Return how much memory a run takes: its outputs, and what casts make of its inputs."""
    made = [*outputs, *(feed.values() if isinstance(session, CastSession) else ())]
    return sum(array.nbytes for array in made)


def _threads(size: int) -> int:
    """Return the number of threads for runs that take up to `size` bytes."""
    return max(2, min(THREADS, MOST_BYTES // max(size, 1)))


def _difference(session: Session, feed: Feed, alone: Outputs) -> Comparison | str | None:
    """Run a feed once; return the error, or the first difference. The outputs are freed on return."""
    outputs = _outputs_or_error(session, feed)
    if isinstance(outputs, str):
        return outputs
    return first_difference(alone, outputs)


def _outputs_or_error(session: Session, feed: Feed) -> Outputs | str:
    try:
        return call(session, feed)
    except RefusedError as error:
        return str(error)
