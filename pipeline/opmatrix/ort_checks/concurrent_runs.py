"""Run one session in several threads at once: each run must give the outputs that it gives alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from opmatrix import step_log
from opmatrix.ort_checks.sessions import RefusedError, Session, call
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import Comparison, first_difference

THREADS = 4
ROUNDS = 8

Feed = Mapping[str, Array]
Outputs = tuple[Array, ...]


def run_concurrently(session: Session, feeds: Mapping[str, Feed]) -> dict[str, Comparison | str]:
    """Run each feed alone, then all in several threads; return the difference or the error by the feed's name.

    Each thread begins with another feed, so that a buffer which the calls share holds the values of another feed. A
    feed that fails alone is left out.
    """
    alone: dict[str, Outputs] = {}
    for name, feed in feeds.items():
        step_log.now_running(f"case {name}")
        if not isinstance(outputs := _outputs_or_error(session, feed), str):
            alone[name] = outputs
    if not alone:
        return {}
    step_log.now_running(f"{', '.join(alone)} in {THREADS} threads at once")
    names, start = list(alone), Barrier(THREADS)

    def run(thread: int) -> list[tuple[str, Outputs | str]]:
        first = thread % len(names)
        start.wait()
        return [(name, _outputs_or_error(session, feeds[name])) for name in (names[first:] + names[:first]) * ROUNDS]

    with ThreadPoolExecutor(THREADS) as pool:
        results = [result for of_thread in pool.map(run, range(THREADS)) for result in of_thread]
    found = [(n, r if isinstance(r, str) else first_difference(alone[n], r)) for n, r in reversed(results)]
    return {name: difference for name, difference in found if difference}


def _outputs_or_error(session: Session, feed: Feed) -> Outputs | str:
    try:
        return call(session, feed)
    except RefusedError as error:
        return str(error)
