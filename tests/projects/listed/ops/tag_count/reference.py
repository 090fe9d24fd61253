"""What `tag_count` computes, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def tag_count(x: NDArray[Any], *, tags: tuple[str, ...], more: tuple[str, ...] | None, factor: float) -> NDArray[Any]:
    """Return y of the shape of x."""
    added = sum(len(tag.encode()) for tag in tags) + 10 * len(tags)
    if more is not None:
        added += 100 + sum(2 * len(tag.encode()) + 1 for tag in more)
    return np.asarray(x * x.dtype.type(factor) + added, x.dtype)
