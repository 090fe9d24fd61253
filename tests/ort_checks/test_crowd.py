"""Runs in several threads of one session: differences and errors are found, and few outputs are in memory at once."""

from __future__ import annotations

import itertools
import threading
import tracemalloc
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from opmatrix.data.arrays import Array
from opmatrix.data.compare import Comparison
from opmatrix.ort_checks import run_case
from opmatrix.ort_checks.run_case import run_concurrently

pytestmark = pytest.mark.ort


class Twice:
    """A session that computes 2 x, with a fault where a test overrides `after`."""

    def run(self, names: None, feed: Mapping[str, Array]) -> Sequence[Array]:
        return [self.after(np.add(feed["x"], feed["x"]))]

    def after(self, y: Array) -> Array:
        return y


class SharedBuffer(Twice):
    """Writes the last element of an output to a buffer that all calls share, and reads it when the first call of every
    thread has written its own."""

    def __init__(self) -> None:
        self.buffer, self.calls, self.written = 0.0, itertools.count(), threading.Barrier(run_case.THREADS)

    def after(self, y: Array) -> Array:
        first = threading.current_thread() is not threading.main_thread() and next(self.calls) < run_case.THREADS
        self.buffer = y.flat[-1]
        if first:
            self.written.wait()
        y.flat[-1] = self.buffer
        if first:
            self.written.wait()  # until all have read it
        return y


class Counting(Twice):
    """Gives another output in each run."""

    def __init__(self) -> None:
        self.runs = itertools.count()

    def after(self, y: Array) -> Array:
        y += next(self.runs)
        return y


class Refusing(Twice):
    """Fails where another call runs."""

    def __init__(self) -> None:
        self.running, self.refused = threading.Lock(), threading.Event()

    def after(self, y: Array) -> Array:
        if not self.running.acquire(blocking=False):
            self.refused.set()
            raise RuntimeError("busy")
        if threading.current_thread() is not threading.main_thread():
            self.refused.wait()
        self.running.release()
        return y


def feeds(*shapes: tuple[int, ...]) -> dict[str, dict[str, Array]]:
    return {f"case_{n}": {"x": np.full(shape, n + 1.0)} for n, shape in enumerate(shapes)}


def test_a_session_without_a_fault() -> None:
    assert run_concurrently(Twice(), feeds((2, 3), (0,), (), (40, 5))) == {}


def test_a_shared_buffer_behind_the_first_part_that_is_compared() -> None:
    """The index is that of the whole output, although parts of it are compared."""
    large = next(iter(run_concurrently(SharedBuffer(), feeds((3, 500_000), (3, 500_000))).values()))
    assert isinstance(large, Comparison)
    assert (large.worst, large.first) == ((2, 499_999), (2, 499_999))
    assert {large.expected, large.actual} == {"2.0", "4.0"}


def test_an_error_among_threads_and_not_alone() -> None:
    assert set(run_concurrently(Refusing(), feeds((2,), (3,))).values()) == {"busy"}


def test_a_feed_that_fails_alone_is_left_out() -> None:
    class Odd(Twice):
        def after(self, y: Array) -> Array:
            if y.size % 2:
                raise RuntimeError("odd")
            return y

    assert run_concurrently(Odd(), feeds((3,), (2,))) == {}
    assert run_concurrently(Odd(), feeds((3,))) == {}


def test_a_large_case_takes_the_memory_of_four_copies_at_most() -> None:
    """100 MB of outputs: one run alone and one of each of two threads, whether they differ or not."""
    size = 100_000_000
    feed = feeds((1000, size // 8 // 1000))
    for session in (Twice(), Counting()):
        tracemalloc.start()
        try:
            run_concurrently(session, feed)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 2 * size < peak < 4 * size, f"{peak / size:.1f} copies"


@pytest.mark.parametrize(("size", "threads"), [(0, 4), (1 << 26, 4), (1 << 27, 2), (1 << 40, 2)])
def test_large_outputs_run_in_fewer_threads(size: int, threads: int) -> None:
    assert run_case.threads_for(size) == threads
