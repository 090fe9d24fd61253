"""A sample of mutants: seeded, and spread over kinds and functions as the mutants themselves are."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from opmatrix.mutation.mutant import Mutant


def sample(mutants: Sequence[Mutant], *, count: int, seed: str) -> list[Mutant]:
    """Return `count` mutants, or all where there are no more, in their order.

    Each part and kind is in it, as far as `count` allows. The others are taken evenly from the mutants in order of
    part, kind and function, so that each of these has its share. Equal mutants and an equal `seed` give an equal
    sample; an edit of one function changes it little.
    """
    if count >= len(mutants):
        return list(mutants)
    ranks = {mutant.key: hashlib.sha256(f"{seed}\0{mutant.key}".encode()).hexdigest() for mutant in mutants}
    by_rank = sorted(mutants, key=lambda mutant: ranks[mutant.key])
    one_each = {(mutant.part, mutant.kind): mutant for mutant in reversed(by_rank)}  # the first by rank
    first = sorted(one_each.values(), key=lambda mutant: ranks[mutant.key])[:count]
    taken = {mutant.key for mutant in first}
    others = sorted(
        (mutant for mutant in mutants if mutant.key not in taken),
        key=lambda mutant: (mutant.part, mutant.kind, mutant.function, ranks[mutant.key]),
    )
    wanted = count - len(first)
    taken |= {others[(2 * number + 1) * len(others) // (2 * wanted)].key for number in range(wanted)}
    return [mutant for mutant in mutants if mutant.key in taken]
