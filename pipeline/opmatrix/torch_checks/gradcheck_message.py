"""Shorten the message of torch.autograd.gradcheck, which prints two whole matrices, to the elements that differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from opmatrix import step_log

RTOL, ATOL = 1e-3, 1e-5  # gradcheck's defaults
_FEW = 4  # elements in the message
_MOST = 20_000  # elements of a matrix that torch prints whole

# In fast mode the second pair has the matrices, the first two sums.
_PAIR = re.compile(
    r"numerical:\s*tensor\((.*?)\)\s*analytical:\s*tensor\((.*?)\)\s*(?=\n|$)", re.DOTALL | re.IGNORECASE
)
_ROW = re.compile(r"\[([^\[\]]*)\]")


@contextmanager
def print_whole_matrices() -> Iterator[None]:
    """Let torch print whole matrices in the block, so that `summarize` can read them."""
    torch.set_printoptions(threshold=_MOST, precision=8, linewidth=120)  # type: ignore[no-untyped-call]  # torch has no types for it
    try:
        yield
    finally:
        torch.set_printoptions(profile="default")  # type: ignore[no-untyped-call]  # as above


def summarize(text: str) -> str:
    """Return one line with the elements that differ, or "" if `text` reports no wrong Jacobian.

    The whole text goes to the step's log.
    """
    head = text.strip().partition("\n")[0].rstrip(",")
    if "Jacobian" not in head or not (pairs := _PAIR.findall(text)):
        return ""
    step_log.detail(text.strip())
    numerical, analytical = map(_matrix, pairs[-1])
    largest = re.search(r"max per-element difference[^:]*: (\S+?)\.?\s", text)
    if [len(row) for row in numerical] != [len(row) for row in analytical] or not numerical:
        return f"{head}; the largest difference is {largest[1]}" if largest else head
    found = [
        (f"[{i}, {j}]", n, a)
        for i, (row, other) in enumerate(zip(numerical, analytical, strict=True))
        for j, (n, a) in enumerate(zip(row, other, strict=True))
        if not abs(n - a) <= ATOL + RTOL * abs(n)  # so that a NaN differs
    ]
    if not found:  # in fast mode the sums may differ although no element does
        return f"{head}; no single element differs by more than rtol={RTOL:g} atol={ATOL:g}"
    count = sum(map(len, numerical))
    differ = "differs" if len(found) == 1 else "differ"
    elements = "; ".join(f"{where} numerical {n:.6g}, analytical {a:.6g}" for where, n, a in found[:_FEW])
    more = f"; and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return (
        f"{head}: {len(found)} of {count} elements {differ}, by [element of the input, of the output]: {elements}{more}"
    )


def _matrix(text: str) -> list[list[float]]:
    """Return the rows of a printed matrix, or [] if it is not printed whole."""
    if "..." in text:
        return []
    return [[float(number) for number in row.replace(",", " ").split()] for row in _ROW.findall(text)]
