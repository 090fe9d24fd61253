"""mxfp8_quantize in NumPy: the scale by frexp, the rounding to float8 by ml_dtypes."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

BLOCK, GREATEST = 32, 448.0  # of float8_e4m3fn


def mxfp8_quantize(tensor: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the bits of the rounded values, and the scales in an array of whole 128 by 4."""
    size = tensor.shape[-1]
    blocks = -(-size // BLOCK)
    count = int(np.prod(tensor.shape[:-1]))
    rows = np.zeros((count, blocks * BLOCK), np.float32)
    rows[:, :size] = tensor.reshape(count, size)
    values = rows.reshape(count, blocks, BLOCK)
    with np.errstate(all="ignore"):
        known = np.where(np.isnan(values), 0, np.abs(values))
        biased = _exponents(known.max(axis=2, initial=0) * np.float32(1 / GREATEST))
        scaled = values * _reciprocals(biased)[:, :, None]
        small = np.clip(scaled, -GREATEST, GREATEST).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    bits = np.where(np.isnan(scaled), 0x7F, small).astype(np.uint8)
    scales = np.zeros((-(-count // 128) * 128, -(-blocks // 4) * 4), np.uint8)
    scales[:count, :blocks] = biased
    return bits.reshape(count, blocks * BLOCK)[:, :size].reshape(tensor.shape), scales


def _exponents(scales: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the exponent of the least power of two that is not below each number, plus 127, from 0 to 254."""
    fraction, exponent = np.frexp(scales.astype(np.float64))
    above = exponent + 126 + (fraction > 0.5)
    return np.where(np.isinf(scales), 254, np.where(scales == 0, 0, np.maximum(above, 0))).astype(np.uint8)


def _reciprocals(biased: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.ldexp(1.0, 127 - biased.astype(np.int64)).astype(np.float32)
