"""The gradient of quant."""

from typing import Any

import torch

NOT_A_DERIVATIVE = "straight-through: the derivative of rounding is 0"


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, ctx.step = inputs
    ctx.save_for_backward(x)


def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (x,) = ctx.saved_tensors
    return grad * ((x / ctx.step).abs() < 2.5), None
