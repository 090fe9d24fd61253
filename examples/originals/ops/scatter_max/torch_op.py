"""The gradient of scatter_max: that of each result goes to the number that it is."""

from typing import Any

import torch

WITHOUT_GRADIENT = ("index",)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    src, _, ctx.dim, out, _ = inputs
    ctx.shape, ctx.has_out = src.shape, out is not None
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of src and out for that of y; one place more takes those of numbers that are not of src."""
    (arg_out,) = ctx.saved_tensors
    size = ctx.shape[ctx.dim]
    shape = [*ctx.shape]
    shape[ctx.dim] += 1
    grad_src = grad.new_zeros(shape).scatter(ctx.dim, arg_out, grad).narrow(ctx.dim, 0, size)
    return grad_src, None, None, torch.where(arg_out == size, grad, 0) if ctx.has_out else None, None
