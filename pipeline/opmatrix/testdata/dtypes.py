"""NumPy's dtypes of the declared ones."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  # registers bfloat16 with NumPy
import numpy as np

from opmatrix.spec import DType


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return NumPy's dtype: object for strings, ml_dtypes' for bfloat16, as in the onnx package."""
    return np.dtype("O" if dtype == "string" else dtype)
