"""scatter_max in NumPy: step by step along the axis, in all rows at once."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def scatter_max(
    src: Array, index: NDArray[np.int64], out: Array | None, *, dim: int, dim_size: int | None
) -> tuple[Array, NDArray[np.int64]]:
    """Return the largest numbers, and where each was along `dim`."""
    axis = range(src.ndim)[dim]
    lead = (1,) * axis if index.ndim == 1 else ()
    shape = lead + index.shape
    places = np.broadcast_to(index.reshape(shape + (1,) * (src.ndim - len(shape))), src.shape)
    count = int(places.max(initial=-1)) + 1 if dim_size in (None, -1) else dim_size
    count = count if out is None else out.shape[axis] if out.ndim == src.ndim else -1
    sizes = (*src.shape[:axis], count, *src.shape[axis + 1 :])
    if out is not None and out.shape != sizes:
        raise ValueError(f"out must have the shape of src but for axis {axis}, got {out.shape}")
    if places.max(initial=-1) >= count or places.min(initial=0) < 0:
        raise ValueError(f"an index is outside of {count} places")
    floating = src.dtype.kind not in "iu"
    lowest = ml_dtypes.finfo(src.dtype).min if floating else np.iinfo(src.dtype).min
    first = np.full(sizes, lowest, src.dtype) if out is None else out.copy()
    rows, at = (np.moveaxis(array, axis, -1) for array in (src, places))
    found = np.moveaxis(first, axis, -1)
    args = np.full(found.shape, src.shape[axis], np.int64)
    others = np.indices(rows.shape[:-1], sparse=True)
    for step in range(src.shape[axis]):
        target = (*others, at[..., step])
        larger = rows[..., step] > found[target]
        found[target] = np.where(larger, rows[..., step], found[target])
        args[target] = np.where(larger, step, args[target])
    if out is None:
        found[found == lowest] = 0
    return np.moveaxis(found, -1, axis), np.moveaxis(args, -1, axis)
