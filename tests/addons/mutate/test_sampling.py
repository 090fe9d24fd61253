"""Samples are seeded, and have each part, kind and function by its share."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from opmatrix.addons.mutate.mutant import Mutant
from opmatrix.addons.mutate.operator_mutants import sample


def mutant(number: int, kind: str, function: str = "f") -> Mutant:
    return Mutant(path="native/f/kernel.h", kind=kind, function=function, line=number, start=number, end=number + 1,
                  before="a", after="b", context=f"{function} {number}")  # fmt: skip


MUTANTS = [
    *(mutant(n, "arithmetic", f"function_{n % 4}") for n in range(80)),
    *(mutant(n, "constant") for n in range(80, 100)),
    mutant(100, "state"),
]


def test_each_kind_is_in_it_and_the_others_by_their_share() -> None:
    found = sample(MUTANTS, count=21, seed="1")
    kinds = Counter(m.kind for m in found)
    assert len(found) == 21
    assert kinds["state"] == 1
    assert 14 <= kinds["arithmetic"] <= 17
    functions = Counter(m.function for m in found if m.kind == "arithmetic")
    assert len(functions) == 4
    assert max(functions.values()) - min(functions.values()) <= 2


def test_it_is_in_the_order_of_the_file_and_has_each_once() -> None:
    found = sample(MUTANTS, count=50, seed="1")
    assert [m.line for m in found] == sorted({m.line for m in found})
    assert len(found) == 50


def test_a_seed_gives_one_sample_and_another_seed_another() -> None:
    assert sample(MUTANTS, count=21, seed="1") == sample(MUTANTS, count=21, seed="1")
    assert sample(MUTANTS, count=21, seed="1") != sample(MUTANTS, count=21, seed="2")


def test_fewer_than_the_kinds_are_of_different_kinds() -> None:
    assert len({m.kind for m in sample(MUTANTS, count=2, seed="1")}) == 2


@pytest.mark.parametrize("count", [101, 1000])
def test_more_than_there_are_is_all(count: int) -> None:
    assert sample(MUTANTS, count=count, seed="1") == MUTANTS


def test_lines_that_move_change_no_sample() -> None:
    moved = [dataclasses.replace(m, line=m.line + 7, start=m.start + 70, end=m.end + 70) for m in MUTANTS]
    assert [m.key for m in sample(moved, count=21, seed="1")] == [m.key for m in sample(MUTANTS, count=21, seed="1")]


def test_an_edit_of_one_function_keeps_most_of_the_sample() -> None:
    before = {m.key for m in sample(MUTANTS, count=21, seed="1")}
    after = {m.key for m in sample([m for m in MUTANTS if m.function != "function_0"], count=21, seed="1")}
    others = {m.key for m in MUTANTS if m.function != "function_0"}
    assert len(before & others - after) <= 2
