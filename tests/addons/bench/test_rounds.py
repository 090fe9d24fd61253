"""Rounds: who is timed, in which order, and what ends them."""

from __future__ import annotations

from collections import Counter

from opmatrix.addons.bench.forked import Prepared
from opmatrix.addons.bench.statistics import LOOKS, pairs, run

PREPARED = (
    Prepared(name="torch library", side="torch", ours=True, calls=10),
    Prepared(name="ORT library", side="onnxruntime", ours=True, calls=20),
    Prepared(name="decomposed", side="onnxruntime", calls=30),
    Prepared(name="torch", side="torch", calls=40),
    Prepared(name="torch compiled", side="torch", skipped="left out"),
)


def test_a_library_is_compared_with_the_peers_of_its_side() -> None:
    assert pairs(PREPARED) == [(0, 3), (1, 2)]


def test_equal_times_end_the_rounds_at_the_first_look() -> None:
    found = run(PREPARED, lambda n, calls: 0.001 * calls * (n + 1), budget=1e9, narrow=pairs(PREPARED))
    assert found.ended == "narrow" and found.count == LOOKS[0]
    assert found.ratio(0, 3).median == 0.25 and found.of(2).median == 0.003
    assert found.seconds[4] == ()


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


def test_without_a_pair_the_seconds_of_each_must_be_narrow() -> None:
    alone = (PREPARED[0],)
    assert pairs(alone) == []
    assert run(alone, lambda n, calls: 1.0, budget=1e9, narrow=()).ended == "narrow"
