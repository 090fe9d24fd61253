"""Non-maximum suppression in NumPy: all overlaps at once, in float64, as the operator is declared to compute them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def nms(
    boxes: NDArray[np.floating],
    scores: NDArray[np.floating],
    classes: NDArray[np.int64] | None,
    valid: NDArray[np.bool_] | None,
    factors: tuple[NDArray[np.floating], ...],
    *,
    iou_threshold: float,
    score_threshold: float,
    max_boxes: int,
    format: str,
    coordinates: tuple[int, ...],
    axis: int,
) -> tuple[NDArray[np.int64], NDArray[np.floating], NDArray[np.bool_]]:
    """Return the indices of the kept boxes (M,), their scores (M,), and per box whether it is kept (N,).

    Raises ValueError for coordinates that are not 0 to 3.
    """
    count = len(scores)
    if sorted(coordinates) != [0, 1, 2, 3]:
        raise ValueError(f"coordinates {coordinates}")
    with np.errstate(all="ignore"):  # NaN and infinities go through as IEEE 754 has it
        weighted: NDArray[Any] = np.prod([np.asarray(s, np.float64) for s in (scores, *factors)], axis=0)
        overlaps = _overlaps(np.moveaxis(boxes, axis, 0).astype(np.float64)[list(coordinates)], format)
        rivals = overlaps > iou_threshold
        if classes is not None:
            rivals &= classes[:, None] == classes[None, :]
        free = weighted > score_threshold
    if valid is not None:
        free &= valid
    order = sorted(np.flatnonzero(free), key=lambda i: (-weighted[i], i))
    chosen: list[int] = []
    while order and not (max_boxes and len(chosen) == max_boxes):
        best = order[0]
        chosen.append(int(best))
        order = [i for i in order[1:] if not rivals[best, i]]
    kept = np.zeros(count, bool)
    kept[chosen] = True
    return np.array(chosen, np.int64), weighted[chosen], kept


def _overlaps(numbers: NDArray[Any], format: str) -> NDArray[Any]:
    """Return the intersection of each two boxes, as a share of their union; NaN where that is not defined."""
    first, second = numbers[:2], numbers[2:]
    if format == "center":
        first, second = first - second / 2, first + second / 2
    low, high = np.minimum(first, second), np.maximum(first, second)
    sides = np.minimum(high[:, :, None], high[:, None, :]) - np.maximum(low[:, :, None], low[:, None, :])
    shared = np.prod(np.maximum(sides, 0), axis=0)
    area = np.prod(high - low, axis=0)
    share: NDArray[Any] = shared / (area[:, None] + area[None, :] - shared)
    return share
