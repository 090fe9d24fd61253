"""Rounds, each of which times every contestant once, in a new order, so that a busy machine slows down all; intervals
of medians from order statistics, which assume no distribution; and the test for a slowdown."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Literal

from opmatrix.addons.bench.forked import Prepared

LOOK = 0.99
"""The confidence of an interval at one look. Stopping at the first narrow one keeps at least 0.95 over all looks, which
tests/addons/bench/test_statistics.py simulates."""
NARROW = 0.01
"""Half of the width, relative to the median, at which an interval is narrow."""
LOOKS = (12, 18, 27, 40, 60, 90, 135, 200, 300, 450, 675, 1000)
"""Intervals are tested after this many rounds: few tests keep the confidence."""
FEWEST = 6
"""Of fewer rounds the least and the greatest value enclose the median with less than 0.95."""
FALSE_ALARMS = 0.01
"""The share of runs without a slowdown in which at least one row may be called slower."""
IGNORED = math.log(1.02)
"""Slowdowns up to 2% are not called slower: compilers and addresses move code by as much."""
FIRST, LAST = 6, 18
"""The test is made after this many generations of processes: the first time, and once more for suspicious rows."""
_LEAST_NOISE = 0.001


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median, and the limits within which the true one is."""

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Relative to the median."""
        return (self.high - self.low) / 2 / self.median if self.median else math.inf


@cache
def _rank(count: int, confidence: float) -> int:
    """Return the rank k, from 1 on, so that the k-th smallest and the k-th largest value enclose the median with this
    confidence; 0 where no rank does."""
    chances, total = 1, 0  # binomial coefficients, of which all together are 2**count
    for k in range(count // 2):
        total += chances
        if total / 2**count > (1 - confidence) / 2:
            return k
        chances = chances * (count - k) // (k + 1)
    return count // 2


def median_interval(values: Sequence[float], *, confidence: float = LOOK) -> Interval:
    """Return the median with the interval between two order statistics; all values where there are too few."""
    ordered = sorted(values)
    rank = max(1, _rank(len(ordered), confidence))
    return Interval(median=statistics.median(ordered), low=ordered[rank - 1], high=ordered[-rank])


def ratio(ours: Sequence[float], peer: Sequence[float]) -> Interval:
    """Return the interval of the ratio of two contestants, whose times are of the same rounds."""
    return median_interval([a / b for a, b in zip(ours, peer, strict=True)])


def is_look(rounds: int) -> bool:
    """Return whether intervals are tested after this many rounds."""
    return rounds in LOOKS or (rounds > LOOKS[-1] and rounds % 500 == 0)


def is_narrow(interval: Interval, rounds: int) -> bool:
    """Return whether an interval is narrow after this many rounds."""
    return rounds >= LOOKS[0] and interval.half_width <= NARROW


def t_tail(t: float, freedom: int) -> float:
    """Return P(T > t) of Student's distribution with `freedom` degrees of freedom.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom")
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    total, term = 0.0, cosine if freedom % 2 else 1.0
    for k in range(1 + freedom % 2, freedom, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    within = 2 / math.pi * (angle + sine * total) if freedom % 2 else sine * total
    tail = max(0.0, (1 - within) / 2)
    return tail if t >= 0 else 1 - tail


@dataclass(frozen=True, kw_only=True)
class Slowdown:
    """The judgement of one row: the ratio of this operator to the one at the revision, the relative noise of one
    generation of processes, and whether the row is slower."""

    ratio: float
    noise: float
    p: float
    level: float
    generations: int
    slower: bool
    undecided: bool


def slowdown(changes: Sequence[float], noises: Sequence[float], *, rows: int) -> Slowdown:
    """Judge one of `rows` rows that are judged in this run.

    `changes` has for each generation the median of log(new / old), `noises` that of log(new again / new): two processes
    of one build. The noise of a generation is the greater of both deviations, and the test is one-sided: is the mean
    change greater than `IGNORED`? Its level is `FALSE_ALARMS`, divided by the number of rows and of both looks. A row
    is undecided if it may be slower: its change is greater than `IGNORED` before the last look.
    """
    count = len(changes)
    mean = statistics.fmean(changes)
    apart = statistics.stdev(changes)
    # The mean of the noise is 0 by construction, so that no degree of freedom is spent on it.
    again = math.sqrt(statistics.fmean([value**2 for value in noises]))
    noise = max(apart, again, _LEAST_NOISE)
    p = t_tail((mean - IGNORED) / (noise / math.sqrt(count)), count - 1)
    level = FALSE_ALARMS / (2 * rows)
    looked = count in (FIRST, LAST)
    slower = looked and p < level
    return Slowdown(
        ratio=math.exp(mean),
        noise=noise,
        p=p,
        level=level,
        generations=count,
        slower=slower,
        undecided=not slower and mean > IGNORED and count < LAST,
    )


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
        if prepared[a].ours and not prepared[b].ours and prepared[a].side == prepared[b].side
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
            found[n].append(time_calls(n, prepared[n].calls) / prepared[n].calls)
        rounds += 1
        spent = rounds >= 3 and clock() >= end
        if not spent and not is_look(rounds):
            continue
        done = Rounds(seconds=tuple(map(tuple, found)), ended="narrow")
        intervals = [done.ratio(a, b) for a, b in narrow] or [done.of(n) for n in order]
        if is_look(rounds) and all(is_narrow(interval, rounds) for interval in intervals):
            return done
        if spent:
            return replace(done, ended="budget")
