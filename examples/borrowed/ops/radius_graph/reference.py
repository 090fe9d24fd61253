"""Edges between near points in NumPy: all distances at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def radius_graph(
    x: NDArray[np.floating],
    batch: NDArray[np.int64] | None,
    *,
    r: float,
    loop: bool,
    max_num_neighbors: int,
    flow: str,
) -> NDArray[np.int64]:
    """Return edge_index (2, E). Raises ValueError for a batch that decreases.

    Distances are in float64, dimension after dimension, as it is declared: an edge is no matter of tolerance.
    """
    count, dimensions = x.shape
    if batch is not None and (batch[1:] < batch[:-1]).any():
        raise ValueError(f"batch decreases: {batch}")
    points: NDArray[Any] = x.astype(np.float64)
    squared = np.zeros((count, count))
    with np.errstate(all="ignore"):  # NaN and infinities go through as IEEE 754 has it
        for column in points.T:
            squared += np.square(column[:, None] - column[None, :])
    near = squared < np.float64(r) * np.float64(r) if dimensions else np.zeros((count, count), bool)
    if batch is not None:
        near &= batch[:, None] == batch[None, :]
    if not loop:
        np.fill_diagonal(near, False)
    near &= near.cumsum(axis=1) <= max_num_neighbors
    point, neighbour = np.nonzero(near)
    order = (neighbour, point) if flow == "source_to_target" else (point, neighbour)
    return np.stack(order).astype(np.int64)
