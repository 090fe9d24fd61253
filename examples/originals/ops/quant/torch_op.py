"""The straight-through gradient: rounding has the derivative 1, and clamping 1 inside the range and 0 outside."""

from typing import Any

import torch

WITHOUT_GRADIENT = ("bitwidth",)
NOT_A_DERIVATIVE = "straight-through: the derivative of rounding is 0"


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    *tensors, ctx.signed, ctx.narrow, _ = inputs
    ctx.save_for_backward(*tensors, output)


def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of x, scale and zeropt for that of y."""
    x, scale, zeropt, bits, y = ctx.saved_tensors
    at = x / scale + zeropt
    most = 2.0 ** (bits - 1) - 1 if ctx.signed else 2.0**bits - (2 if ctx.narrow else 1)
    least = -(2.0 ** (bits - 1)) + (1 if ctx.narrow else 0) if ctx.signed else 0 * bits
    if ctx.signed:  # one bit is -1 or 1
        least, most = torch.where(bits == 1, -1, least), torch.where(bits == 1, 1, most)
    inside = (at >= least) & (at <= most)
    end = torch.where(at > most, most, least)
    grad_x = torch.where(inside, grad, 0)
    grad_scale = (grad * torch.where(inside, (y - x) / scale, end - zeropt)).sum_to_size(scale.shape)
    grad_zeropt = (grad * torch.where(inside, 0, -scale)).sum_to_size(zeropt.shape)
    return grad_x, grad_scale, grad_zeropt, None, None, None, None
