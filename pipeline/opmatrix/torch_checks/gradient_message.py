"""What the gradient check says about elements that differ, and about the sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from opmatrix.torch_checks.gradient_samples import GradSample

_FEW = 3  # elements in the message


@dataclass(frozen=True, kw_only=True)
class Differing:
    """A gradient of a sample that differs: `actual`, of the `n`-th derived tensor, for the gradients `weights` of the
    floating outputs. Both arrays say what they are; an element that nothing judges is equal in both."""

    sample: GradSample
    n: int
    leaves: Sequence[torch.Tensor]
    weights: Sequence[torch.Tensor]
    actual: torch.Tensor
    expected: torch.Tensor
    expected_is: str
    actual_is: str = "backward()"
    rtol: float
    atol: float


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is wrong with a gradient, and which numbers, if it is numbers."""

    text: str
    differing: Differing | None = None


def elements(actual: torch.Tensor, expected: torch.Tensor, differ: torch.Tensor, judge: str) -> str:
    """Return ``backward() gives 0 at [2], the numerical derivative is 1.5; 3 of 3 elements differ``."""
    places = differ.nonzero().tolist()
    judge = judge if " " in judge else f"{judge} gives"
    shown = "; ".join(
        f"backward() gives {_number(actual, at)} at {at}, {judge} {_number(expected, at)}" for at in places[:_FEW]
    )
    count = actual.numel()
    return f"{shown}; {len(places)} of {count} {'element differs' if count == 1 else 'elements differ'}"


def in_sample(one: GradSample, what: str, *, exact: bool, differing: Differing | None = None) -> Problem:
    """Return what is wrong, and in which sample."""
    instance = ", in a float64 instance" if exact and {*one.model.types.values()} != {"float64"} else ""
    return Problem(text=f"{what}. Sample: {one.described()}{instance}", differing=differing)


def _number(tensor: torch.Tensor, at: Sequence[int]) -> str:
    return f"{float(tensor[tuple(at)]) + 0.0:.6g}"  # 0 for -0
