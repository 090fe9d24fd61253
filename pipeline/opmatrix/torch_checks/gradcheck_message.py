"""What torch.autograd.gradcheck says of a wrong gradient: two matrices in one text, of which a few elements differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from opmatrix import step_log

RTOL, ATOL = 1e-3, 1e-5  # gradcheck's own
_FEW = 4  # elements that are told
_MOST = 20_000  # elements of a matrix that is printed whole

# Of the fast mode the second pair: the first holds two sums.
_PAIR = re.compile(
    r"numerical:\s*tensor\((.*?)\)\s*analytical:\s*tensor\((.*?)\)\s*(?=\n|$)", re.DOTALL | re.IGNORECASE
)
_ROW = re.compile(r"\[([^\[\]]*)\]")


@contextmanager
def in_full() -> Iterator[None]:
    """Let torch print matrices so that they can be read again, for a while."""
    torch.set_printoptions(threshold=_MOST, precision=8, linewidth=120)  # type: ignore[no-untyped-call]  # torch has no types for it
    try:
        yield
    finally:
        torch.set_printoptions(profile="default")  # type: ignore[no-untyped-call]  # as above


def said(text: str) -> str:
    """Return what gradcheck found as one short line, or nothing where it was no wrong Jacobian; its own text, with the
    matrices, is told aside."""
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
    if not found:  # what two sums show need not show in a single element
        return f"{head}; no single element differs by more than rtol={RTOL:g} atol={ATOL:g}"
    count = sum(map(len, numerical))
    differ = "differs" if len(found) == 1 else "differ"
    told = "; ".join(f"{where} numerical {n:.6g}, analytical {a:.6g}" for where, n, a in found[:_FEW])
    more = f"; and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return f"{head}: {len(found)} of {count} elements {differ}, by [element of the input, of the output]: {told}{more}"


def _matrix(text: str) -> list[list[float]]:
    """Return a printed matrix by rows; one that is not printed whole has none."""
    if "..." in text:
        return []
    return [[float(number) for number in row.replace(",", " ").split()] for row in _ROW.findall(text)]
