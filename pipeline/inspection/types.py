"""Types of values in a model, as messages show them."""

from __future__ import annotations

from onnx import TensorProto, TypeProto, helper


def shown(found: TypeProto) -> str:
    """Return a type as a message shows it: ``float32[2, C, ?]``."""
    tensor = found.tensor_type
    if not found.HasField("tensor_type"):
        return str(found.WhichOneof("value") or "of unknown type").removesuffix("_type")
    if not tensor.HasField("shape"):
        return f"{dtype(tensor.elem_type)} of unknown rank"
    sizes = (d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in tensor.shape.dim)
    return f"{dtype(tensor.elem_type)}[{', '.join(sizes)}]"


def dtype(element: int) -> str:
    """Return the name of an element type."""
    if element == TensorProto.STRING:
        return "string"
    return str(helper.tensor_dtype_to_np_dtype(element)) if element else "unknown dtype"
