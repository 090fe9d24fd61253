"""x + alpha * other, modulo 2**64 as the kernel's."""

from typing import Any

import numpy as np


def shift(x: Any, other: int, alpha: int) -> Any:
    return x + np.full_like(x, alpha) * np.full_like(x, other)
