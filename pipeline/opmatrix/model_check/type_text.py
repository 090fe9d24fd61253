"""Types, shapes and ranges of values as `doit check` prints them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, TypeProto

from opmatrix.export.signature import element_dtype
from opmatrix.testdata.arrays import Array, dtype_name


def format_type(found: TypeProto) -> str:
    """Return an ONNX type as ``float32[2, C, ?]``."""
    tensor = found.tensor_type
    if not found.HasField("tensor_type"):
        return str(found.WhichOneof("value") or "of unknown type").removesuffix("_type")
    known = tensor.elem_type in TensorProto.DataType.values()
    dtype = (element_dtype(tensor.elem_type) if known else "") or "unknown dtype"
    if not tensor.HasField("shape"):
        return f"{dtype} of unknown rank"
    sizes = (d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in tensor.shape.dim)
    return f"{dtype}[{', '.join(sizes)}]"


def format_array(array: Array) -> str:
    """Return dtype and shape as ``float32[2, 3]``."""
    return f"{dtype_name(array)}[{', '.join(map(str, array.shape))}]"


def format_value(value: Any) -> str:
    """Return dtype and shape of an array; of a list, those of its elements; of anything else, its type."""
    if isinstance(value, np.ndarray):
        return format_array(value)
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    return "nothing" if value is None else type(value).__name__


def format_range(value: Any) -> str:
    """Return dtype, shape and range as ``float32[2, 3] in -1.2 to 3.4``; for a value that is no tensor, its type."""
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    if value.dtype == np.object_ or not value.size:
        return format_array(value)
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    odd = value.size - finite.size
    limits = f" in {finite.min():.4g} to {finite.max():.4g}" if finite.size else ""
    return format_array(value) + limits + (f" and {odd} NaN or infinite" if odd else "")
