"""Words, in Python."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def split_words(text: Array, axes: Array) -> tuple[Array, Array, Array]:
    """Return the words, the flat index and the number of each in its string, and the strings without a word."""
    found = [[word for word in value.split(" ") if word] for value in text.ravel()]
    words = [word for parts in found for word in parts]
    places = [(row, column) for row, parts in enumerate(found) for column in range(len(parts))]
    rest = [value for value, parts in zip(text.ravel(), found, strict=True) if not parts]
    return np.array(words, object), np.array(places, np.int64).reshape(-1, 2), np.array(rest, object)
