"""Quant in NumPy: each operation in float32 and in the original's order, on tensors of the shape of x."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[np.float32]
Grid = tuple[Tensor, Tensor, Tensor]


def quant(
    x: Tensor, scale: Tensor, zeropt: Tensor, bitwidth: Tensor, *, is_signed: bool, narrow: bool, rounding_mode: str
) -> Tensor:
    """Return y of the shape of x. Raises ValueError for a parameter whose shape does not broadcast to it."""
    scale, zeropt, bits = _like(x, scale), _like(x, zeropt), _like(x, bitwidth)
    with np.errstate(all="ignore"):  # a scale of 0 gives NaN and infinities as in IEEE 754
        at = x / scale + zeropt
        least, most = _limits(bits, is_signed, narrow)
        integer = _rounded(np.minimum(np.maximum(at, least), most), rounding_mode.upper())
        if is_signed:  # one bit is -1 or 1
            integer = np.where(bits == 1, np.where(at >= 0, 1, -1).astype(x.dtype), integer)
        y: Tensor = (integer - zeropt) * scale
    return y


def quant_gradient(
    grad_y: NDArray[Any], x: NDArray[Any], scale: NDArray[Any], zeropt: NDArray[Any], bitwidth: NDArray[Any], *,
    is_signed: bool, narrow: bool, rounding_mode: str,
) -> tuple[NDArray[Any] | None, ...]:  # fmt: skip
    """Return the straight-through gradient: rounding has the derivative 1, and clamping 1 inside and 0 outside."""
    with np.errstate(all="ignore"):
        every = [_like(x, part) for part in (scale, zeropt, bitwidth)]
        at = x / every[0] + every[1]
        least, most = _limits(every[2], is_signed, narrow)
        if is_signed:  # one bit is -1 or 1
            least, most = np.where(every[2] == 1, -1, least), np.where(every[2] == 1, 1, most)
        inside = (at >= least) & (at <= most)
        y = quant(x, scale, zeropt, bitwidth, is_signed=is_signed, narrow=narrow, rounding_mode=rounding_mode)
        of_scale = np.where(inside, (y - x) / every[0], np.where(at > most, most, least) - every[1])
        of_zeropt = np.where(inside, 0, -every[0])
    return np.where(inside, grad_y, 0), _summed(grad_y * of_scale, scale), _summed(grad_y * of_zeropt, zeropt), None


def _like(x: NDArray[Any], given: NDArray[Any]) -> NDArray[Any]:
    if np.broadcast_shapes(x.shape, given.shape) != x.shape:
        raise ValueError(f"the shape {given.shape} does not broadcast to {x.shape}")
    return np.broadcast_to(given, x.shape)


def _summed(grad: NDArray[Any], given: NDArray[Any]) -> NDArray[Any]:
    """Return the sum over the axes along which `given` was broadcast."""
    lead = grad.ndim - given.ndim
    axes = (*range(lead), *(lead + n for n, size in enumerate(given.shape) if size == 1))
    return grad.sum(axis=axes).reshape(given.shape)


def _limits(bits: NDArray[Any], is_signed: bool, narrow: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    two, one = bits.dtype.type(2), bits.dtype.type(1)
    if is_signed:
        half = two ** (bits - one)
        return -half + one * narrow, half - one
    return 0 * bits, two**bits - one * (1 + narrow)


def _rounded(x: NDArray[Any], mode: str) -> NDArray[Any]:
    half, size, sign = x.dtype.type(0.5), np.abs(x), np.sign(x)
    match mode:
        case "ROUND" | "HALF_EVEN":
            return np.round(x)
        case "CEIL":
            return np.ceil(x)
        case "FLOOR":
            return np.floor(x)
        case "DOWN":
            return np.trunc(x)
        case "UP":
            return sign * np.ceil(size)
        case "HALF_UP":
            return sign * np.floor(size + half)
    return sign * np.ceil(size - half)
