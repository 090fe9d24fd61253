"""The gradients of a sample, how one differs from what is expected, and backward() called as training calls it: with
gradients of other strides, and for one input while others are frozen. These must be those of a call with contiguous
gradients for all inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from opmatrix.torch_checks.case_calls import CaseCall
from opmatrix.torch_ops.case_tensors import laid_out

RTOL = 1e-6  # in float64: other strides may change the order of a sum, and
ROUNDING = 1e-10  # of the largest gradient remains where the terms of a sum cancel
_FEW = 3  # elements in the message


@dataclass(frozen=True, kw_only=True)
class Differing:
    """A gradient of a sample that differs: `actual`, of the `n`-th derived tensor, for the gradients `weights` of the
    floating outputs. Both arrays say what they are; an element that nothing judges is equal in both."""

    sample: CaseCall
    n: int
    leaves: Sequence[torch.Tensor]
    weights: Sequence[torch.Tensor]
    actual: torch.Tensor
    expected: torch.Tensor
    expected_is: str
    actual_is: str = "backward()"
    rtol: float
    atol: float


Outputs = tuple[torch.Tensor, ...]
Problem = tuple[str, Differing | None]
"""What is wrong with a gradient, and which numbers, if it is numbers."""


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Leaves, what the operator gives for them, random gradients of its floating outputs, those of the leaves.

    The random gradient of an output that the formula marks as not differentiable is 0.
    """

    leaves: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    weights: list[torch.Tensor]
    by_leaf: tuple[torch.Tensor, ...]

    def slopes(self, moved: Sequence[Outputs], step: float) -> tuple[float, float]:
        """Return the change of the outputs by a step up, and by one down, each element times its gradient."""

        def weighted(outputs: Outputs) -> float:
            floating = (o for o in outputs if o.is_floating_point())
            return sum(float((o.detach() * w).sum()) for o, w in zip(floating, self.weights, strict=True))

        (up, down), base = map(weighted, moved), weighted(self.outputs)
        return (up - base) / step, (down - base) / -step

    def bend(self, up: Sequence[torch.Tensor], down: Sequence[torch.Tensor]) -> float:
        """Return how far the outputs are from the middle of two others, summed, each element times its gradient."""
        found = ((a + b - 2 * o.detach(), o) for a, b, o in zip(up, down, self.outputs, strict=True))
        bent = (of for of, o in found if o.is_floating_point())
        return sum(float((of * w).abs().sum()) for of, w in zip(bent, self.weights, strict=True))

    def differing(self, one: CaseCall, n: int, expected: torch.Tensor, **others: Any) -> Differing:
        """Return the gradient of the `n`-th leaf with the expected one; `others` are further fields."""
        return Differing(
            sample=one,
            n=n,
            leaves=self.leaves,
            weights=self.weights,
            actual=self.by_leaf[n],
            expected=expected,
            **others,
        )

    def size(self) -> float:
        """Return the sum of the sizes of the outputs that have gradients, whose rounding is in a measured change."""
        return sum(float(o.detach().abs().sum()) for o in self.outputs if o.is_floating_point() and o.requires_grad)


def backward(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of the leaves for those of all floating outputs. Raises what backward() raises."""
    floating = (o for o in outputs if o.is_floating_point())
    asked = [(o, w) for o, w in zip(floating, weights, strict=True) if o.requires_grad]
    return torch.autograd.grad(
        [o for o, _ in asked], leaves, [w for _, w in asked], allow_unused=True, retain_graph=True
    )


def problem(one: CaseCall, gradients: Gradients) -> Problem:
    """Return what differs in another call, "" if nothing does, and the arrays. Raises what backward() raises."""
    weights = gradients.weights
    strided = [laid_out(laid_out(w, "flipped"), "sliced") for w in weights]
    expanded = [w.new_ones(()).expand_as(w) for w in weights]

    def given_for(weights: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the gradients for other weights, none of which may lack, as the first call gave them."""
        found = [g for g in backward(gradients.outputs, gradients.leaves, weights) if g is not None]
        if len(found) < len(gradients.leaves):
            raise RuntimeError("it gives no gradient")
        return tuple(found)

    plain = given_for([w.contiguous() for w in expanded])
    for given, expected, how in (
        (strided, gradients.by_leaf, "a gradient of the output that is not contiguous"),
        (expanded, plain, "an expanded gradient of the output, as sum().backward() gives it"),
    ):
        called = replace(gradients, weights=given, by_leaf=given_for(given))
        for n, index in enumerate(one.derived):
            words = f"backward() for {how}", "backward() for a contiguous one"
            text, differing = _difference(one, called, expected, n, "with a contiguous one it gives", words)
            if text:
                return f"with {how}, for {one.names[index]!r}, {text}", differing
    # Then the gradient of each tensor alone, while no other requires one.
    for n, index in enumerate(one.derived if len(one.derived) > 1 else ()):
        leaves = [leaf.detach().requires_grad_(at == n) for at, leaf in enumerate(gradients.leaves)]
        outputs, alone = one.call_derived(*leaves), f"while only {one.names[index]!r} requires a gradient"
        (found,) = backward(outputs, [leaves[n]], weights)
        if found is None:
            return f"{alone}, it gives none", None
        every = (*gradients.by_leaf[:n], found, *gradients.by_leaf[n + 1 :])
        called = replace(gradients, leaves=tuple(leaves), outputs=outputs, by_leaf=every)
        words = f"backward() {alone}", "backward() while all inputs require one"
        text, differing = _difference(one, called, gradients.by_leaf, n, "while all inputs do it gives", words)
        if text:
            return f"{alone}, {text}", differing
    return "", None


def _difference(
    one: CaseCall, called: Gradients, wanted: Sequence[torch.Tensor], n: int, judge: str, words: tuple[str, str]
) -> Problem:
    """Return how the `n`-th gradient differs; `words` say what it is, and what the wanted one is."""
    actual, expected = called.by_leaf[n], wanted[n]
    atol = RTOL * largest(expected) + ROUNDING * max(1.0, *map(largest, wanted))
    differ = ~torch.isclose(actual, expected, rtol=RTOL, atol=atol, equal_nan=True)
    if not bool(differ.any()):
        return "", None
    differing = called.differing(one, n, expected, rtol=RTOL, atol=atol, actual_is=words[0], expected_is=words[1])
    return elements(actual, expected, differ, judge), differing


def elements(actual: torch.Tensor, expected: torch.Tensor, differ: torch.Tensor, judge: str) -> str:
    """Return ``backward() gives 0 at [2], the numerical derivative is 1.5; 3 of 3 elements differ``."""
    places = differ.nonzero().tolist()
    judge = judge if " " in judge else f"{judge} gives"
    shown = "; ".join(
        f"backward() gives {_number(actual, at)} at {at}, {judge} {_number(expected, at)}" for at in places[:_FEW]
    )
    count = actual.numel()
    return f"{shown}; {len(places)} of {count} {'element differs' if count == 1 else 'elements differ'}"


def in_sample(one: CaseCall, what: str, *, exact: bool, differing: Differing | None = None) -> Problem:
    """Return what is wrong, and in which sample."""
    instance = ", in a float64 instance" if exact and {*one.model.types.values()} != {"float64"} else ""
    return f"{what}. Sample: {one.described()}{instance}", differing


def _number(tensor: torch.Tensor, at: Sequence[int]) -> str:
    return f"{float(tensor[tuple(at)]) + 0.0:.6g}"  # 0 for -0


def largest(tensor: torch.Tensor) -> float:
    """Return the largest size of an element, 0.0 for a tensor without elements."""
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def direction(like: torch.Tensor, *, seed: str) -> torch.Tensor:
    """Return numbers between 0.5 and 1.5 with random signs, which every floating dtype represents; none is small."""
    generator = torch.Generator().manual_seed(zlib.crc32(seed.encode()))
    sizes = torch.randint(64, 192, like.shape, generator=generator)
    signs = torch.randint(0, 2, like.shape, generator=generator) * 2 - 1
    return (sizes * signs / 128).to(like.dtype)
