"""Group normalization in NumPy, by its definition."""

from typing import Any

import numpy as np


def group_norm(x: Any, num_groups: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
    count = num_groups[0]
    if not (1 <= count <= x.shape[1] and x.shape[1] % count == 0):
        raise ValueError(f"num_groups must be a whole number that divides {x.shape[1]}, got {count}")
    with np.errstate(all="ignore"):  # no elements, or all of a group alike and epsilon 0
        groups = x.reshape(x.shape[0], int(count), x[:1].size // int(count)).astype(np.longdouble)
        centred = groups - groups.mean(axis=-1, keepdims=True)
        normal = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + epsilon)
        channels = (-1,) + (1,) * (x.ndim - 2)
        return (normal.reshape(x.shape) * scale.reshape(channels) + bias.reshape(channels)).astype(x.dtype)
