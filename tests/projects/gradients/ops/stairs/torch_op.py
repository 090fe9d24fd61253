"""The gradient of stairs."""

from typing import Any

import torch

WITHOUT_GRADIENT = ("at",)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, at, ctx.edge = inputs
    ctx.save_for_backward(at)


def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (at,) = ctx.saved_tensors
    return torch.ceil(at * ctx.edge * (1 + 1e-15)) * grad, None, None
