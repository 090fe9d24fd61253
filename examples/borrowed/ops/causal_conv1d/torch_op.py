"""The gradient of the causal convolution, composed of differentiable operators of torch, so that it has one itself."""

from typing import Any

import torch


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, weight, bias, initial_states, ctx.activation = inputs
    ctx.save_for_backward(x, weight, bias, initial_states)


def backward(ctx: Any, grad: torch.Tensor, grad_states: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of x, weight, bias and initial_states for those of out and final_states."""
    x, weight, bias, initial_states = ctx.saved_tensors
    steps, width = x.shape[2], weight.shape[1]
    states = x.new_zeros((x.shape[0], x.shape[1], width - 1)) if initial_states is None else initial_states
    whole = torch.cat([states, x], dim=2)
    seen = [whole[:, :, k : k + steps] for k in range(width)]  # what each weight saw
    if ctx.activation != "none":
        total = sum(weight[:, k, None] * seen[k] for k in range(width))
        total = total if bias is None else total + bias[:, None]
        share = torch.sigmoid(total)
        grad = grad * share * (1 + total * (1 - share))
    grad_weight = torch.stack([(grad * of_one).sum((0, 2)) for of_one in seen], dim=1)
    grad_whole = torch.nn.functional.pad(grad_states, (steps, 0))
    for k in range(width):
        grad_whole = grad_whole + torch.nn.functional.pad(weight[:, k, None] * grad, (k, width - 1 - k))
    return (
        grad_whole[:, :, width - 1 :],
        grad_weight,
        None if bias is None else grad.sum((0, 2)),
        None if initial_states is None else grad_whole[:, :, : width - 1],
        None,
    )
