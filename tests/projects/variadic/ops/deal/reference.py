"""Cards in NumPy."""

from typing import Any

from numpy.typing import NDArray


def deal(pile: NDArray[Any], *, players: int) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    dealt = len(pile) // players * players
    return pile[::-1], [pile[n:dealt:players] for n in range(players)]
