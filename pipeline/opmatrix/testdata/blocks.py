"""Go through large arrays in blocks, so that intermediate arrays take little memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

BLOCK = 1 << 16
"""Elements of a block. An array of no more is computed at once."""


def slices(size: int) -> Iterator[slice]:
    """Yield the slices of the blocks of so many elements."""
    return (slice(begin, min(begin + BLOCK, size)) for begin in range(0, size, BLOCK))


def flat(array: NDArray[Any]) -> NDArray[Any]:
    """Return what has the elements in C order by slices. Those of a large array with other strides are copies, all
    others are views."""
    return array.ravel() if array.size <= BLOCK or array.flags.c_contiguous else array.flat  # type: ignore[return-value]  # a flatiter has slices


def parts(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the blocks of an array."""
    values = flat(array)
    return (values[block] for block in slices(array.size))
