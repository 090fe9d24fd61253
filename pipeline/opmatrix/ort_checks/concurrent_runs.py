"""Several threads in one session: each run must give what it gives alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from opmatrix import step_log
from opmatrix.ort_checks.sessions import RefusedError, Session, call
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import EXACT, Comparison, compare

THREADS = 4
ROUNDS = 8

Feed = Mapping[str, Array]
Answer = tuple[Array, ...]


def run_concurrently(session: Session, feeds: Mapping[str, Feed]) -> dict[str, Comparison | str]:
    """Run every feed, alone and then in several threads at once; return what differs or the error, by the
    feed's name.

    Each thread begins with another feed, so that a buffer which calls share holds the numbers of another one. A feed
    that fails alone is left out.
    """
    alone = {}
    for name, feed in feeds.items():
        step_log.now_running(f"case {name}")
        if not isinstance(answer := _try(session, feed), str):
            alone[name] = answer
    if not alone:
        return {}
    step_log.now_running(f"{', '.join(alone)} in {THREADS} threads at once")
    names, start = list(alone), Barrier(THREADS)

    def run(thread: int) -> list[tuple[str, Answer | str]]:
        first = thread % len(names)
        start.wait()
        return [(name, _try(session, feeds[name])) for name in (names[first:] + names[:first]) * ROUNDS]

    with ThreadPoolExecutor(THREADS) as pool:
        answers = [answer for found in pool.map(run, range(THREADS)) for answer in found]
    return {name: where for name, answer in reversed(answers) if (where := _difference(alone[name], answer))}


def _try(session: Session, feed: Feed) -> Answer | str:
    """Return the outputs, or what went wrong."""
    try:
        return call(session, feed)
    except RefusedError as error:
        return str(error)


def _difference(alone: Answer, crowd: Answer | str) -> Comparison | str | None:
    if isinstance(crowd, str):
        return crowd
    for a, b in zip(alone, crowd, strict=True):
        if a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes():
            continue
        found = compare(b, a, tolerance=EXACT)
        if not found.ok:
            return found
    return None
