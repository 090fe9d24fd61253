"""SplitMix64 (Steele, Lea and Flood, 2014), in integers of Python."""

from typing import Any

import numpy as np


def numbers(x: Any, seed: int) -> Any:
    drawn = []
    for index in range(1, x.size + 1):
        z = seed + index * 0x9E3779B97F4A7C15 & 2**64 - 1
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
        z = (z ^ z >> 27) * 0x94D049BB133111EB & 2**64 - 1
        drawn.append(z ^ z >> 31)
    return np.array(drawn, np.uint64).astype(np.int64).reshape(x.shape)
