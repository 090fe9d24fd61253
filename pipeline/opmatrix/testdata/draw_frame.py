"""What all parts of one draw use: the sizes chosen so far, and how to draw one of several values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import strategies
from hypothesis.strategies import DrawFn, SearchStrategy

from opmatrix.declaration.load import Operator
from opmatrix.spec import Case, Model


@dataclass(frozen=True)
class Frame:
    """The shared state of one draw: the case whose shapes its tensors take, or the sizes chosen so far."""

    operator: Operator
    template: tuple[Model, Case] | None
    sizes: dict[str, int] = field(default_factory=dict)
    resized: dict[int, int] = field(default_factory=dict)  # sizes of the case that are replaced, by the new ones
    kept: bool = False  # whether values that the case lists are drawn with it
    numbers: list[float] = field(default_factory=list)  # among the attributes


def pick(draw: DrawFn, values: Sequence[Any]) -> Any:
    """Draw one of `values` by its index, since hypothesis would format all values."""
    return values[draw(_below(len(values)))] if len(values) > 1 else values[0]


@cache
def _below(count: int) -> SearchStrategy[int]:
    """Return a strategy for the numbers from 0 on: hypothesis takes as long to make one as to draw from it."""
    return strategies.integers(0, count - 1)


def nested(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Return values in C order as nested tuples."""
    if not shape:
        return values[0]
    step = math.prod(shape[1:])
    return tuple(nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))
