"""The operator in NumPy."""

from typing import Any

import numpy as np


def softsign_sorted(x: Any) -> Any:
    if np.isnan(x).any():
        raise ValueError("x must have no NaN")
    with np.errstate(invalid="ignore"):  # an infinity by an infinity
        ordered = np.sort(x)
        return ordered / (1 + np.abs(ordered))
