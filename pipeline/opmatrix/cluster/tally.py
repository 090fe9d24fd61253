"""Count the steps that each worker ran or refused, and those that ran on this machine, for the last lines of a run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from opmatrix.errors import many

_ENOUGH = 3  # refusals after which a worker gets no more steps of a group, or none at all if it is broken


class Tally:
    """Counts, by workers. Any thread may call it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ran: Counter[str] = Counter()
        self._refused: Counter[tuple[str, str]] = Counter()  # by worker and group, "" for what breaks all
        self._reasons: dict[str, str] = {}  # by worker: that of the first refusal
        self._stayed: Counter[str] = Counter()  # by reason

    def ran(self, worker: str) -> None:
        with self._guard:
            self._ran[worker] += 1

    def refused(self, worker: str, group: str, reason: str) -> None:
        """Count a refusal of a step of a group; of "", because the worker can run none."""
        with self._guard:
            self._refused[worker, group] += 1
            self._reasons.setdefault(worker, reason)

    def stayed(self, reason: str) -> None:
        """Count a step that no worker could run."""
        with self._guard:
            self._stayed[reason] += 1

    def is_out(self, worker: str, group: str) -> bool:
        """Return whether a worker has refused enough to be asked no more for steps of a group."""
        with self._guard:
            return any(self._refused[worker, asked] >= _ENOUGH for asked in ("", group))

    def lines(self) -> Iterator[str]:
        """Yield the last lines of the run."""
        if self._ran:
            counts = ", ".join(f"{name}: {count}" for name, count in sorted(self._ran.items()))
            yield f"{many(self._ran.total(), 'step')} ran on {many(len(self._ran), 'worker')} ({counts})"
        for name, reason in sorted(self._reasons.items()):
            count = sum(number for (who, _), number in self._refused.items() if who == name)
            yield f"the worker {name} refused {many(count, 'step')}: {reason}"
        for reason, count in self._stayed.items():
            yield f"{many(count, 'step')} ran here: {reason}"
