"""The gradient of RoIAlign for its maps, composed of differentiable operators of torch.

Boxes have none, as in torchvision. A box's bins are linear in its map, one axis after the other, rows @ map @
columns.T, so the gradient of the map is rows.T @ grad @ columns.
"""

from typing import Any

import torch

WITHOUT_GRADIENT = ("rois",)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    input, rois, *ctx.attributes = inputs
    ctx.save_for_backward(rois)
    ctx.maps = input.shape


def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return the gradient of input for that of pooled."""
    (rois,) = ctx.saved_tensors
    scale, pooled_height, pooled_width, ratio, aligned = ctx.attributes
    count, channels, height, width = ctx.maps
    if 0 in (channels, height, width):
        return (grad.new_zeros((count, channels, height, width)), *[None] * 6)
    corners = rois[:, 1:] * scale - (0.5 if aligned else 0.0)
    rows = _shares(corners[:, 1], corners[:, 3], pooled_height, height, ratio, aligned)
    columns = _shares(corners[:, 0], corners[:, 2], pooled_width, width, ratio, aligned)
    of_boxes = torch.einsum("kih,kcij,kjw->kchw", rows, grad, columns)
    maps = grad.new_zeros((count, channels, height, width)).index_add(0, rois[:, 0].to(torch.int64), of_boxes)
    return maps, None, None, None, None, None, None


def _shares(begin: torch.Tensor, end: torch.Tensor, bins: int, pixels: int, ratio: int, aligned: bool) -> torch.Tensor:
    """Return what each pixel of an axis counts in each bin of each box (K, bins, pixels).

    No shape depends on how many samples a box has: with one per pixel no more than `places` of a bin are on the map.
    """
    length = end - begin if aligned else (end - begin).clamp(min=1)
    bin = (length / bins)[:, None, None]
    first = begin[:, None, None] + torch.arange(bins, device=begin.device)[:, None] * bin
    samples = torch.full_like(bin, ratio) if ratio > 0 else bin.ceil()
    step = bin / samples
    places = ratio if ratio > 0 else 2 * pixels + 4  # one per pixel: they are more than half a pixel apart
    skipped = torch.zeros_like(first) if ratio > 0 else ((-1 - first) / step - 1).floor().clamp(min=0)
    number = skipped + torch.arange(places, device=begin.device)
    at = first + (number + 0.5) * step
    on_map = (number < samples) & (at >= -1) & (at <= pixels)
    at = torch.where(on_map, at, 0).clamp(0, pixels - 1)
    low = at.floor().to(torch.int64)
    rest = at - low
    share = torch.where(on_map, 1 / samples, 0)
    shares = begin.new_zeros((begin.shape[0], bins, pixels))
    shares = shares.scatter_add(2, low, share * (1 - rest))
    return shares.scatter_add(2, (low + 1).clamp(max=pixels - 1), share * rest)
