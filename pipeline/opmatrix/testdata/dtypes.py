"""NumPy's dtypes for those of a declaration."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  # teaches NumPy the name bfloat16
import numpy as np

from opmatrix.spec import DType


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return NumPy's dtype; strings are held as objects, bfloat16 is ml_dtypes', as in the onnx package."""
    return np.dtype("O" if dtype == "string" else dtype)
