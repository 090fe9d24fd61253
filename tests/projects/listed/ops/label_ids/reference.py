"""What `label_ids` computes, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def label_ids(
    texts: NDArray[Any], *, labels: tuple[str, ...], counted: tuple[str, ...]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return ids and sizes, of the shape of texts."""
    ids = [labels.index(text) if text in labels else -1 for text in texts.ravel()]
    sizes = [sum(len(one.encode()) + 1 for one in counted if one == text) for text in texts.ravel()]
    return tuple(np.array(found, np.int64).reshape(texts.shape) for found in (ids, sizes))  # type: ignore[return-value]  # two of them
