"""gradients::mix in Python, and its gradient."""

from typing import Any

import torch


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, bias, ctx.dim = inputs
    ctx.given = bias is not None
    ctx.save_for_backward(x)


def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (x,) = ctx.saved_tensors
    of_x = 2 * x * grad.flip(ctx.dim).cumsum(ctx.dim).flip(ctx.dim)
    of_bias = grad.sum(0) if ctx.given else None
    return of_x, of_bias, None


def mix(x: torch.Tensor, bias: torch.Tensor | None, dim: int = 1) -> torch.Tensor:
    y = torch.cumsum(x * x, dim)
    return y if bias is None else y + bias


def define() -> Any:
    library = torch.library.Library("gradients", "FRAGMENT")
    library.define("mix(Tensor x, Tensor? bias, int dim=1) -> Tensor")
    library.impl("mix", mix, "CPU")
    library.impl("mix", lambda x, bias, dim=1: torch.empty_like(x), "Meta")
    return library
