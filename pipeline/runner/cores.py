"""The cores of a run, shared by its steps: never more are used than `doit -n` says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.runner.tasks import StepTask

# What a step finds in its environment: how many processes it may start at a time. ninja is told.
JOBS = "OPMATRIX_JOBS"

# A compile step has three objects that do not wait for each other. All others are one thread: OMP_NUM_THREADS is 1 in
# the servers, and the few sessions and calls with more threads, which are tests of that, are short.
_AT_MOST = {"compile": 3}


class Cores:
    def __init__(self, count: int) -> None:
        self._free = count
        self._half = max(1, count // 2)  # one step alone may not hold all: often but one of its objects is stale
        self._changed = threading.Condition()

    @contextmanager
    def take(self, task: StepTask) -> Iterator[int]:
        """Wait for a free core, and hold as many as the step can use of those that are free."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0)
            taken = min(self._free, self._half, _AT_MOST.get(task.step.group, 1))
            self._free -= taken
        try:
            yield taken
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()
