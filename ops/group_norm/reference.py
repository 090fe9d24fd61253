"""Group normalization in NumPy, by its definition, in the precision of numpy.longdouble."""

import numpy as np
from numpy.typing import NDArray


def group_norm(
    x: NDArray[np.floating],
    num_groups: NDArray[np.float32],
    scale: NDArray[np.floating],
    bias: NDArray[np.floating],
    *,
    epsilon: float,
) -> NDArray[np.floating]:
    """Return y of x's shape: per sample and group, (x - mean) / sqrt(variance + epsilon) * scale + bias."""
    count = num_groups[0]
    if not (0 < count < 2**62 and count == np.floor(count) and x.shape[1] % int(count) == 0):
        raise ValueError(f"num_groups must be a whole number that divides {x.shape[1]}, got {count}")
    with np.errstate(all="ignore"):  # 0/0 with epsilon 0, infinities and NaN go through as IEEE 754 has it
        if x.size == 0:
            return x
        exact = x.astype(np.longdouble)
        groups = exact.reshape(x.shape[0], int(count), -1)
        centred = groups - groups.mean(axis=-1, keepdims=True)
        centred -= centred.mean(axis=-1, keepdims=True)  # what rounding left of a large mean
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        normal = (centred / np.sqrt(variance + np.longdouble(epsilon))).reshape(x.shape)
        per_channel = (-1,) + (1,) * (x.ndim - 2)
        factor, summand = (v.astype(np.longdouble).reshape(per_channel) for v in (scale, bias))
        y: NDArray[np.floating] = (normal * factor + summand).astype(x.dtype)
        return y
