"""The pieces of strings, in Python."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray


def string_split(
    input: NDArray[Any], delimiter: NDArray[Any], skip_empty: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Return indices, pieces and shape of the sparse matrix."""
    ends = delimiter[0]
    if not ends.isascii():
        raise ValueError(f"a delimiter of other characters than ASCII: {ends!r}")
    rows = [_pieces(text, ends, skip=bool(skip_empty[0])) for text in input]
    indices = [(row, column) for row, pieces in enumerate(rows) for column in range(len(pieces))]
    values = [piece for pieces in rows for piece in pieces]
    shape = (len(rows), max(map(len, rows), default=0))
    return np.array(indices, np.int64).reshape(-1, 2), np.array(values, object), np.array(shape, np.int64)


def _pieces(text: str, ends: str, *, skip: bool) -> list[str]:
    if not text:
        return []  # also where empty pieces are kept
    if not ends:
        if not text.isascii():
            raise ValueError(f"without a delimiter, other characters than ASCII: {text!r}")
        return list(text)
    found = re.split(f"[{re.escape(ends)}]", text)
    return [piece for piece in found if piece] if skip else found
