"""The gradient of rms_scale."""

from typing import Any

import torch


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    scale = torch.rsqrt(x.square().mean(1, keepdim=True) + ctx.eps)
    weighted = grad if weight is None else grad * weight
    of_x = scale * (weighted - x * scale.square() * (weighted * x).mean(1, keepdim=True))
    return of_x, None if weight is None else (grad * x * scale).sum(0), None
