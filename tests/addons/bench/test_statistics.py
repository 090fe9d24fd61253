"""The statistics of `doit bench`: rounds, and by simulation how often an interval is right, and a slowdown is found."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from opmatrix.addons.bench import statistics
from opmatrix.addons.bench.forked import Prepared
from opmatrix.addons.bench.statistics import (
    FIRST,
    LAST,
    LOOKS,
    Slowdown,
    is_look,
    is_narrow,
    median_interval,
    pairs,
    ratio,
    run,
    slowdown,
    t_tail,
)


def test_the_rank_of_an_interval() -> None:
    """As in tables of the sign test at 95%, such as Conover, Practical Nonparametric Statistics."""
    assert [statistics._rank(count, 0.95) for count in (5, 6, 12, 100)] == [0, 1, 3, 40]
    for count in (999, 1000, 4000):  # the normal distribution
        assert statistics._rank(count, 0.95) == pytest.approx(count / 2 - 1.96 * math.sqrt(count) / 2, abs=1.5)


def test_an_interval_is_between_values() -> None:
    found = median_interval([float(n) for n in range(1, 101)], confidence=0.95)
    assert (found.median, found.low, found.high) == (50.5, 40.0, 61.0)
    assert found.half_width == pytest.approx(10.5 / 50.5)
    few = median_interval([3.0, 1.0, 2.0])
    assert (few.low, few.median, few.high) == (1.0, 2.0, 3.0), "all of them"


def round_of(chance: random.Random, *, true: float) -> tuple[float, float]:
    """Return the seconds of two contestants in one round: what disturbs both, what disturbs each, and the rest of the
    time another program on the processor, in one of ten rounds."""
    both = math.exp(chance.gauss(0, 0.1))
    seconds = [both * math.exp(chance.gauss(0, 0.01) + chance.expovariate(100)) for _ in range(2)]
    ours, peer = (one * (1 + chance.expovariate(2)) if chance.random() < 0.1 else one for one in seconds)
    return true * ours, peer


def until_narrow(chance: random.Random, *, true: float, most: int) -> tuple[bool, bool]:
    """Return whether the interval at which the rounds end has the true ratio, and whether it was narrow."""
    rounds: list[tuple[float, float]] = []
    while True:
        rounds.append(round_of(chance, true=true))
        count = len(rounds)
        if is_look(count) or count == most:
            ours, peer = zip(*rounds, strict=True)
            found = ratio(ours, peer)
            if (narrow := is_look(count) and is_narrow(found, count)) or count == most:
                return found.low <= true <= found.high, narrow


@pytest.mark.parametrize("most", [20, 400])
def test_the_interval_at_the_end_has_the_true_ratio(most: int) -> None:
    """Also where the rounds ended because it was narrow: at least 95% of the time. 0.03 is 3 deviations of the
    simulation."""
    chance = random.Random(0)
    ends = [until_narrow(chance, true=0.8, most=most) for _ in range(400)]
    assert sum(right for right, _ in ends) / len(ends) >= 0.95 - 0.03
    narrow = sum(narrow for _, narrow in ends) / len(ends)
    assert narrow < 0.1 if most == 20 else narrow > 0.9


def test_looks_are_few() -> None:
    assert [n for n in range(1, 2001) if is_look(n)] == [*LOOKS, 1500, 2000]
    assert not is_narrow(median_interval([1.0] * 11), 11) and is_narrow(median_interval([1.0] * 12), 12)


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    [(2.015, 5, 0.05), (4.032, 5, 0.005), (2.110, 17, 0.025), (3.965, 17, 0.0005), (1.0, 1, 0.25), (0.0, 4, 0.5),
     (-2.015, 5, 0.95), (2.132, 4, 0.05), (1.812, 10, 0.05)],
)  # fmt: skip
def test_tails_of_students_distribution(t: float, freedom: int, tail: float) -> None:
    assert t_tail(t, freedom) == pytest.approx(tail, rel=0.01)
    with pytest.raises(ValueError, match="0 degrees of freedom"):
        t_tail(1.0, 0)


def heavy(chance: random.Random, deviation: float) -> float:
    """Return a number of Student's distribution with 4 degrees of freedom: a few processes are unlucky."""
    return deviation * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(2, 0.5)) / math.sqrt(2)


def judged(chance: random.Random, *, change: float, noise: float, rows: int) -> Slowdown:
    """Return what becomes of one row with a true change, as `opmatrix.addons.bench.against` decides it."""
    changes: list[float] = []
    noises: list[float] = []
    while True:
        old, new, again = (heavy(chance, noise / math.sqrt(2)) for _ in range(3))
        changes.append(change + new - old)
        noises.append(again - new)
        if len(changes) >= FIRST:
            found = slowdown(changes, noises, rows=rows)
            if not found.undecided:
                return found


def share(measure: Callable[[random.Random], bool], *, runs: int) -> float:
    chance = random.Random(0)
    return sum(measure(chance) for _ in range(runs)) / runs


def alarms(*, change: float = 0.0, noise: float, rows: int, runs: int) -> float:
    """Return the share of runs that have an alarm in a row."""
    return share(
        lambda chance: any(judged(chance, change=change, noise=noise, rows=rows).slower for _ in range(rows)), runs=runs
    )


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("rows", [4, 48])
def test_a_run_without_a_change_is_rarely_an_alarm(rows: int, noise: float) -> None:
    """Less than 1% of runs, over all rows of a run."""
    assert alarms(noise=noise, rows=rows, runs=2000 // rows) < 0.01


def test_a_change_that_is_ignored_is_rarely_an_alarm() -> None:
    assert alarms(change=statistics.IGNORED, noise=0.02, rows=8, runs=100) < 0.01


@pytest.mark.parametrize(("noise", "rows"), [(0.01, 48), (0.02, 4), (0.03, 48), (0.04, 4)])
def test_a_slowdown_of_a_tenth_is_found(noise: float, rows: int) -> None:
    found = share(lambda chance: judged(chance, change=math.log(1.1), noise=noise, rows=rows).slower, runs=150)
    assert found > 0.95


def test_a_test_at_the_usual_level_would_give_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests above can fail."""
    monkeypatch.setattr(statistics, "FALSE_ALARMS", 0.05 * 2 * 48)
    monkeypatch.setattr(statistics, "IGNORED", 0.0)
    assert alarms(noise=0.02, rows=48, runs=20) > 0.5


def test_a_row_is_judged_at_two_looks_alone() -> None:
    changes, noises = [0.2, 0.201, 0.199, 0.2, 0.2, 0.2, 0.201], [0.0] * 7
    assert slowdown(changes[:FIRST], noises[:FIRST], rows=1).slower
    between = slowdown(changes, noises, rows=1)
    assert not between.slower and between.undecided
    assert slowdown([0.2, 0.201] * (LAST // 2), [0.001] * LAST, rows=1).slower
    equal = slowdown([0.0] * FIRST, [0.0] * FIRST, rows=1)
    assert equal.ratio == 1.0 and not equal.slower and not equal.undecided


PREPARED = (
    Prepared(name="torch library", side="torch", ours=True, calls=10),
    Prepared(name="ORT library", side="onnxruntime", ours=True, calls=20),
    Prepared(name="decomposed", side="onnxruntime", calls=30),
    Prepared(name="torch", side="torch", calls=40),
    Prepared(name="torch compiled", side="torch", skipped="left out"),
)


def test_equal_times_end_the_rounds_at_the_first_look() -> None:
    """A library is compared with the peers of its side; without a pair the seconds of each must be narrow."""
    assert pairs(PREPARED) == [(0, 3), (1, 2)] and pairs(PREPARED[:1]) == []
    found = run(PREPARED, lambda n, calls: 0.001 * calls * (n + 1), budget=1e9, narrow=pairs(PREPARED))
    assert found.ended == "narrow" and found.count == LOOKS[0]
    assert found.ratio(0, 3).median == 0.25 and found.of(2).median == 0.003
    assert found.seconds[4] == ()
    assert run(PREPARED[:1], lambda n, calls: 1.0, budget=1e9, narrow=()).ended == "narrow"


def test_a_spent_budget_ends_the_rounds() -> None:
    now = [0.0]

    def timed(n: int, calls: int) -> float:
        now[0] += 1
        return 0.001 * calls * (1 + now[0] % 2)  # never narrow

    found = run(PREPARED, timed, budget=100, narrow=pairs(PREPARED), clock=lambda: now[0])
    assert found.ended == "budget" and 100 <= now[0] <= 105


def test_contestants_take_turns_in_changing_order() -> None:
    order: list[int] = []

    def timed(n: int, calls: int) -> float:
        order.append(n)
        assert calls == PREPARED[n].calls
        return calls * 1.0

    run(PREPARED, timed, budget=1e9, narrow=pairs(PREPARED))
    assert Counter(order) == {0: 12, 1: 12, 2: 12, 3: 12}
    rounds = [order[i : i + 4] for i in range(0, len(order), 4)]
    assert all(sorted(one) == [0, 1, 2, 3] for one in rounds) and len({tuple(one) for one in rounds}) > 5
