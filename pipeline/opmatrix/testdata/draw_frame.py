"""What all parts of one draw use: the sizes chosen so far, and how to draw one of several values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies
from hypothesis.strategies import DrawFn

from opmatrix.declaration.load import Operator
from opmatrix.spec import Case, Model


@dataclass(frozen=True)
class Frame:
    """The shared state of one draw: the case whose shapes its tensors take, or the sizes chosen so far."""

    operator: Operator
    template: tuple[Model, Case] | None
    sizes: dict[str, int] = field(default_factory=dict)


def pick(draw: DrawFn, values: Sequence[Any]) -> Any:
    """Draw one of `values` by its index, since hypothesis would format all values."""
    return values[draw(strategies.integers(0, len(values) - 1))]
