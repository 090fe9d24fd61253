"""Rows by index in NumPy."""

from typing import Any

from numpy.typing import NDArray


def gather_rows(x: NDArray[Any], index: NDArray[Any]) -> NDArray[Any]:
    return x[index]
