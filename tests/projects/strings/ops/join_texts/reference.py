"""Joined strings, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Texts = NDArray[Any]


def join_texts(first: Texts, prefix: Texts | None, others: tuple[Texts, ...], *, separator: str) -> Texts:
    """Return ``prefix + first + separator + other + ...``, element by element."""
    start = "" if prefix is None else prefix.item()
    joined = np.empty(first.shape, object)
    for index in np.ndindex(first.shape):
        joined[index] = start + separator.join(text[index] for text in (first, *others))
    return joined
