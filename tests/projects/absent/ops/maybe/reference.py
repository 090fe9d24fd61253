"""What `maybe` computes, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def maybe(
    x: NDArray[Any],
    *,
    factor: float,
    shift: float | None,
    times: int | None,
    negate: bool | None,
    mode: str | None,
    weights: tuple[float, ...] | None,
    steps: tuple[int, ...] | None,
    more: int | None,
) -> NDArray[Any]:
    """Return y of the shape of x."""
    y = x * x.dtype.type(factor)
    if shift is not None:
        y = y + x.dtype.type(shift) + 1
    if times is not None:
        y = y * times + 2
    if negate is not None:
        y = -y if negate else y + 3
    if mode is not None:
        y = {"none": y + 4, "double": 2 * y, "halve": y / 2}[mode]
    if weights is not None:
        y = y + x.dtype.type(sum(weights)) + 5 + len(weights)
    if steps is not None:
        y = y + sum(steps) + 6 + len(steps)
    if more is not None:
        y = y + more + 8
    return np.asarray(y, x.dtype)
