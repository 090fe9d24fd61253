"""A model as the report draws it: its nodes and what joins them, as JSON data. Needs onnx alone.

Inner values are numbers: exporters name them as they like, so that what is drawn alike is written alike, and the report
keeps one picture of it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from opmatrix.export.signature import element_dtype

_SHOWN = 6  # elements of a constant; of a larger one dtype and shape stand in the picture
_LENGTH = 80  # of an attribute's text


def graph_json(proto: ModelProto) -> dict[str, Any]:
    """Return inputs, nodes and outputs of a model.

    An input or output is ``[value, name, "float32[2, n]"]``. Of a node, ``in`` holds values, the text of constants, and
    None for an optional input that is not given; ``out`` holds values, ``attributes`` text by name, and a node of a
    custom domain has ``domain`` and ``version``. An output may be a constant: its value is then the text.
    """
    graph = proto.graph
    known = {tensor.name: _tensor(tensor) for tensor in graph.initializer}
    known |= {node.output[0]: text for node in graph.node if (text := _constant(node)) is not None}
    numbers: dict[str, int] = {}

    def value(name: str) -> int | str | None:
        return (known[name] if name in known else numbers.setdefault(name, len(numbers))) if name else None

    versions = {o.domain: o.version for o in proto.opset_import}
    return {
        "inputs": [[value(v.name), v.name, _type(v.type)] for v in graph.input],
        "nodes": [
            {
                "op": node.op_type,
                **({"domain": node.domain, "version": versions.get(node.domain, 0)} if node.domain else {}),
                "in": [value(name) for name in node.input],
                "out": [value(name) for name in node.output],
                "attributes": {a.name: _attribute(a) for a in sorted(node.attribute, key=lambda a: a.name)},
            }
            for node in graph.node
            if _constant(node) is None
        ],
        "outputs": [[value(v.name), v.name, _type(v.type)] for v in graph.output],
    }


def _constant(node: NodeProto) -> str | None:
    """Return what a Constant node holds, or None for any other node."""
    if node.op_type != "Constant" or node.domain:
        return None
    return next((_attribute(a) for a in node.attribute), "")


def _attribute(attribute: AttributeProto) -> str:
    match attribute.type:
        case AttributeProto.TENSOR:
            return _tensor(attribute.t)
        case AttributeProto.STRING:
            text = repr(attribute.s.decode(errors="replace"))
        case AttributeProto.FLOAT:
            text = f"{attribute.f:.7g}"  # a float32: more digits say nothing
        case AttributeProto.INT | AttributeProto.INTS:
            text = str(helper.get_attribute_value(attribute))
        case AttributeProto.FLOATS:
            text = f"[{', '.join(f'{number:.7g}' for number in attribute.floats)}]"
        case AttributeProto.STRINGS:
            text = str([item.decode(errors="replace") for item in attribute.strings])
        case other:
            text = AttributeProto.AttributeType.Name(other).lower()
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH - 1]}…"


def _tensor(tensor: TensorProto) -> str:
    """Return the numbers of a small tensor, dtype and shape of a larger one."""
    shape = list(tensor.dims)
    if prod(shape) > _SHOWN or tensor.data_type == TensorProto.STRING or tensor.external_data:
        return f"{element_dtype(tensor.data_type)}{shape}"
    return str(numpy_helper.to_array(tensor).tolist())


def _type(declared: TypeProto) -> str:
    """Return ``float32[2, n]``, without brackets where the rank is not known."""
    tensor = declared.tensor_type
    dtype = element_dtype(tensor.elem_type)
    if not dtype or not tensor.HasField("shape"):
        return dtype
    return f"{dtype}[{', '.join(d.dim_param or str(d.dim_value) for d in tensor.shape.dim)}]"
