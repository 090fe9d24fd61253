"""Time the contestants of one row in rounds until the intervals of all ratios are narrow, or the budget is spent."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from opmatrix.bench.prepared import Prepared
from opmatrix.bench.statistics import Interval, is_look, is_narrow, median_interval, ratio

_LOOPS = 3  # the copy and FMA loops are timed in each third round only: they have no ratio

Time = Callable[[int, int], float]
"""A function of the number of a contestant and a number of calls, which returns the seconds of all."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The seconds per call of each contestant in each round, and what ended the rounds."""

    seconds: tuple[tuple[float, ...], ...]
    ended: Literal["narrow", "budget"]

    @property
    def count(self) -> int:
        return max(map(len, self.seconds), default=0)

    def of(self, index: int) -> Interval:
        """Return the interval of the seconds per call of a contestant."""
        return median_interval(self.seconds[index])

    def ratio(self, ours: int, peer: int) -> Interval:
        return ratio(self.seconds[ours], self.seconds[peer])


def pairs(prepared: Sequence[Prepared]) -> list[tuple[int, int]]:
    """Return the contestants that are compared: each library of the operator with the peers of its side."""
    present = [n for n, found in enumerate(prepared) if found.calls]
    return [
        (a, b)
        for a, b in product(present, present)
        if prepared[a].ours and not prepared[b].ours and not prepared[b].amount and prepared[a].side == prepared[b].side
    ]


def run(
    prepared: Sequence[Prepared],
    time_calls: Time,
    *,
    budget: float,
    narrow: Sequence[tuple[int, int]],
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Rounds:
    """Run rounds until the ratios of all pairs in `narrow`, or without pairs the seconds of all, are narrow."""
    order = [n for n, found in enumerate(prepared) if found.calls]
    found: list[list[float]] = [[] for _ in prepared]
    chance, end, rounds = random.Random(seed), clock() + budget, 0
    while True:
        chance.shuffle(order)
        for n in order:
            if prepared[n].amount and rounds % _LOOPS:
                continue
            found[n].append(time_calls(n, prepared[n].calls) / prepared[n].calls)
        rounds += 1
        if is_look(rounds) and _all_narrow(found, narrow, order, rounds):
            return Rounds(seconds=tuple(map(tuple, found)), ended="narrow")
        if clock() >= end and rounds >= 3:
            return Rounds(seconds=tuple(map(tuple, found)), ended="budget")


def _all_narrow(
    found: Sequence[Sequence[float]], narrow: Sequence[tuple[int, int]], order: Sequence[int], rounds: int
) -> bool:
    if narrow:
        return all(is_narrow(ratio(found[a], found[b]), rounds) for a, b in narrow)
    return all(is_narrow(median_interval(found[n]), rounds) for n in order)
