"""The gradient of group normalization, composed of differentiable operators of torch, so that it has one itself."""

from typing import Any

import torch

WITHOUT_GRADIENT = ("num_groups",)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, num_groups, scale, _, ctx.eps = inputs
    ctx.save_for_backward(x, num_groups, scale)


def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of x, scale and bias for that of y.

    With z = (x - mean) / sqrt(variance + eps) and w = grad * scale, that of x is
    (w - mean(w) - z * mean(w * z)) / sqrt(variance + eps), all means over a group.
    """
    x, num_groups, scale = ctx.saved_tensors
    own = x.dtype
    wide = torch.promote_types(own, num_groups.dtype)  # float32 for halves, whose sums overflow, or end at 256
    pixels = x.to(wide).unsqueeze(-1).flatten(2)  # (N, C, P), for x without further axes as well
    outer = grad.to(wide).unsqueeze(-1).flatten(2)
    weights = _weights(pixels, num_groups)

    def mean(of: torch.Tensor) -> torch.Tensor:
        return (of.sum(-1) @ weights).unsqueeze(-1)

    centred = pixels - mean(pixels)
    centred = centred - mean(centred)  # what rounding left of a large mean
    rate = torch.rsqrt(mean(centred.square()) + ctx.eps)
    z = centred * rate
    inner = outer * scale.unsqueeze(-1)
    grad_x = (inner - mean(inner) - z * mean(inner * z)) * rate
    return grad_x.reshape(x.shape).to(own), None, (outer * z).sum((0, 2)).to(own), outer.sum((0, 2)).to(own), None


def _weights(pixels: torch.Tensor, num_groups: torch.Tensor) -> torch.Tensor:
    """Return the (C, C) matrix that takes sums per channel to means per group.

    No shape depends on the number of groups, which is known in its tensor alone: this traces without its value.
    """
    channels = pixels.shape[1]
    group = torch.arange(channels, device=pixels.device) * num_groups.to(torch.int64) // channels
    same = group.unsqueeze(0) == group.unsqueeze(1)
    return same.to(pixels.dtype) * num_groups.to(pixels.dtype) / (channels * pixels.shape[2])
