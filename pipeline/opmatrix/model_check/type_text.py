"""Types of values in a model, as messages show them."""

from __future__ import annotations

from onnx import TypeProto

from opmatrix.export.signature import element_dtype


def shown(found: TypeProto) -> str:
    """Return a type as a message shows it: ``float32[2, C, ?]``."""
    tensor = found.tensor_type
    if not found.HasField("tensor_type"):
        return str(found.WhichOneof("value") or "of unknown type").removesuffix("_type")
    dtype = element_dtype(tensor.elem_type) or "unknown dtype"
    if not tensor.HasField("shape"):
        return f"{dtype} of unknown rank"
    sizes = (d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in tensor.shape.dim)
    return f"{dtype}[{', '.join(sizes)}]"
