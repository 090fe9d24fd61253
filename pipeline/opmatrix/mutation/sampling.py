"""A sample of mutants: seeded, and spread over kinds and functions as the mutants themselves are."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import groupby

from opmatrix.mutation.mutant import Mutant


def sample(mutants: Sequence[Mutant], *, count: int, seed: str) -> list[Mutant]:
    """Return `count` mutants, or all where there are no more, in their order.

    Each part and kind is in it, as far as `count` allows. The others are taken so that each kind in each function has
    its share. Equal mutants and an equal `seed` give an equal sample, and an edit of one function hardly changes which
    mutants of others are in it, so that their results can be kept.
    """
    if count >= len(mutants):
        return list(mutants)
    rank = {mutant.key: _number(f"{seed} {mutant.key}") for mutant in mutants}
    by_rank = sorted(mutants, key=lambda mutant: rank[mutant.key])
    one_each = {(mutant.part, mutant.kind): mutant.key for mutant in reversed(by_rank)}  # the first by rank
    taken = set(sorted(one_each.values(), key=lambda key: rank[key])[:count])
    others = [key for _, key in sorted(_places(by_rank, seed)) if key not in taken]
    taken |= {*others[: count - len(taken)]}
    return [mutant for mutant in mutants if mutant.key in taken]


def _places(mutants: Sequence[Mutant], seed: str) -> list[tuple[float, str]]:
    """Return a number from 0 to 1 for each mutant: those of one kind in one function are evenly spaced, so that each
    such group has its share of the mutants below any number."""
    places = []
    for group, members in groupby(sorted(mutants, key=_group), key=_group):
        inside = list(members)
        first = _number(" ".join((seed, *group)))
        places += [((number + first) / len(inside), mutant.key) for number, mutant in enumerate(inside)]
    return places


def _group(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.part, mutant.kind, mutant.function


def _number(text: str) -> float:
    """Return a number from 0 to 1, drawn by a hash."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16) / 16**12
