"""Root-mean-square normalization in torch, in float64 as the kernel is."""

import torch


def rms_scale(x: torch.Tensor, weight: torch.Tensor | None, *, eps: float) -> torch.Tensor:
    exact = x.double()
    y = exact * torch.rsqrt(exact.square().mean(1, keepdim=True) + eps)
    return y if weight is None else y * weight
