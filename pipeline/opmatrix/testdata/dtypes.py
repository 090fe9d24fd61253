"""NumPy's dtypes of the declared ones."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from opmatrix.declaration.torch_signature import FOUR_BITS
from opmatrix.spec import DType
from opmatrix.testdata.blocks import BLOCK, flat, slices

SMALL: tuple[DType, ...] = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
"""The floating dtypes that ml_dtypes adds to NumPy."""


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return NumPy's dtype: object for strings, ml_dtypes' for bfloat16, float8 and int4, as in the onnx package."""
    return np.dtype("O" if dtype == "string" else dtype)


def is_float(dtype: str | np.dtype[Any]) -> bool:
    """Return whether a dtype is a floating one; the kind of ml_dtypes' is "V", of float8_e5m2 "f"."""
    return str(dtype).startswith(("float", "bfloat"))


def kind(dtype: np.dtype[Any]) -> str:
    """Return NumPy's kind of a dtype: "i" for int4 and "u" for uint4, whose own one is "V"."""
    return str(dtype)[0] if str(dtype) in FOUR_BITS else dtype.kind


def integer_limits(dtype: str | np.dtype[Any]) -> Any:
    """Return the limits of an integer dtype, as numpy.iinfo does for those of NumPy."""
    return ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it


def float_limits(dtype: str | np.dtype[Any]) -> Any:
    """Return the limits of a floating dtype, as numpy.finfo does for those of NumPy."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it


def has_infinity(dtype: DType) -> bool:
    """Return whether a floating dtype has infinities: of float8, only e5m2 has."""
    return not dtype.startswith("float8") or dtype == "float8_e5m2"


def is_small(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of `SMALL`, which NumPy's own functions do not know. Their kind is "V" or "f"."""
    return kind(dtype) == "V" or (dtype.kind == "f" and dtype.itemsize == 1)


def rounded(values: NDArray[Any], dtype: np.dtype[Any], *, copy: bool = True) -> NDArray[Any]:
    """Return values in another dtype, rounded once. Without `copy`, those that have it already are returned.

    ml_dtypes rounds float64 to float32 first, and so twice. An odd last bit of that float32 keeps what was cut off.
    """
    if not is_small(dtype) or values.dtype.kind != "f" or values.dtype.itemsize <= 4:
        return values.astype(dtype, order="C", copy=copy)
    if values.size > BLOCK:
        made, wide = np.empty(values.size, dtype), flat(values)
        for block in slices(values.size):
            made[block] = rounded(wide[block], dtype)
        return made.reshape(values.shape)
    narrow = values.astype(np.float32, order="C")
    away = np.where(narrow < values, np.float32(np.inf), np.float32(-np.inf))
    odd = np.where(narrow.view(np.uint32) & 1, narrow, np.nextafter(narrow, away))
    return np.where((narrow == values) | np.isnan(narrow), narrow, odd).astype(dtype)
