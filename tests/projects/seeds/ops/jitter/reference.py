"""NumPy's MT19937, which RandomState seeds as std::mt19937."""

from typing import Any

import numpy as np


def jitter(x: Any, amount: float, seed: int | None) -> Any:
    if seed is None:
        return x.copy()
    drawn = np.random.RandomState(seed).randint(0, 2**32, x.size, dtype=np.uint32).reshape(x.shape)
    return x + amount * (drawn / 2.0**31 - 1.0)
