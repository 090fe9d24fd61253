"""Replaced values, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def fill_empty(x: NDArray[Any], other: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return x with `other` for each empty string or 0, where that is, and `other` at the other places."""
    replaced = np.array(x == ("" if x.dtype == object else 0), bool)
    given = other.reshape(())  # a str would become a U array, without NULs at its end
    nothing = np.zeros((), x.dtype) if x.dtype != object else np.array("", object)
    return np.where(replaced, given, x), replaced, np.where(replaced, nothing, given)
