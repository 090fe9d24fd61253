"""Write the models of an export, its manifest, and the graphs that the report draws, as JSON data. Needs onnx alone.

In a drawn graph inner values are numbers: exporters choose their names, and equal graphs must have equal data, so that
the report has one drawing of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

from opmatrix.basics.files import write_bytes, write_text
from opmatrix.export.signature import element_dtype
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.spec import Lowering

_SHOWN = 6  # elements of a constant; a larger one is drawn as dtype and shape
_LENGTH = 80  # characters of an attribute


def graph_json(proto: ModelProto) -> dict[str, Any]:
    """Return inputs, nodes and outputs of a model.

    An input or output is ``[value, name, "float32[2, n]"]``. In a node, ``in`` has values, constants as strings, and
    None for an absent optional input; ``out`` has values, ``attributes`` strings by name, and a node of a custom domain
    has ``domain`` and ``version``. An output may be a constant: its value is then a string.
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
    """Return the value of a Constant node, or None for any other node."""
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
            text = f"{attribute.f:.7g}"  # all digits of a float32
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
    """Return the values of a small tensor, dtype and shape of a larger one."""
    shape = list(tensor.dims)
    if prod(shape) > _SHOWN or tensor.data_type == TensorProto.STRING or tensor.external_data:
        return f"{element_dtype(tensor.data_type)}{shape}"
    return str(numpy_helper.to_array(tensor).tolist())


def _type(declared: TypeProto) -> str:
    """Return ``float32[2, n]``, without brackets if the rank is unknown."""
    tensor = declared.tensor_type
    dtype = element_dtype(tensor.elem_type)
    if not dtype or not tensor.HasField("shape"):
        return dtype
    return f"{dtype}[{', '.join(d.dim_param or str(d.dim_value) for d in tensor.shape.dim)}]"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A model that passed the gates, or the reason why the lowering does not support it, or with `lacks_dtype` why this
    torch does not."""

    name: str
    proto: ModelProto | None = None
    unsupported: str = ""
    lacks_dtype: bool = False
    ignored_attributes: Sequence[str] = ()


def write(paths: Paths, operator: str, lowering: Lowering, cell: Cell, exported: Iterable[Exported]) -> None:
    """Write model.onnx of each, then the manifest and the graphs that the report draws. A refused model is written
    without a graph."""
    of = (operator, lowering, cell)
    models: dict[str, Any] = {}
    pictures: dict[str, Any] = {}
    for one in exported:
        path = paths.model(*of, one.name)
        if one.proto is None:
            write_refused(path, one.unsupported)
            models[one.name] = {"refused": one.unsupported, "opset_imports": {}, "nodes": []}
            if one.lacks_dtype:
                models[one.name]["lacks_dtype"] = True
            continue
        content = one.proto.SerializeToString(deterministic=True)
        write_bytes(path, content)
        models[one.name], pictures[one.name] = describe(one.proto, content), graph_json(one.proto)
        if one.ignored_attributes:
            models[one.name]["dropped"] = one.ignored_attributes
    manifest = {"op": operator, "lowering": lowering, "cell": cell.export_name, "models": models}
    write_text(paths.manifest(*of), json.dumps(manifest, indent=1) + "\n")
    write_text(paths.graph_drawings(*of), json.dumps(pictures, separators=(",", ":")) + "\n")


def write_refused(path: Path, reason: str) -> None:
    """Write a model without a graph, so that a step writes the same files whether or not a lowering refuses a model.
    ONNX Runtime loads no such file."""
    write_bytes(path, ModelProto(doc_string=reason).SerializeToString(deterministic=True))


def describe(proto: ModelProto, content: bytes) -> dict[str, Any]:
    """Return nodes, opset imports, inputs and outputs of a model, and the hash of its file."""
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "ir_version": proto.ir_version,
        "opset_imports": {o.domain: o.version for o in sorted(proto.opset_import, key=lambda o: o.domain)},
        "inputs": [_value_info(v) for v in proto.graph.input],
        "outputs": [_value_info(v) for v in proto.graph.output],
        "nodes": [
            {
                "domain": n.domain,
                "op_type": n.op_type,
                "inputs": list(n.input),
                "outputs": list(n.output),
                "attributes": {  # values as strings: JSON has no NaN and no infinities
                    a.name: {
                        "type": AttributeProto.AttributeType.Name(a.type),
                        "value": repr(helper.get_attribute_value(a)),
                    }
                    for a in sorted(n.attribute, key=lambda a: a.name)
                },
            }
            for n in proto.graph.node
        ],
    }


def _value_info(value: ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    return {
        "name": value.name,
        "dtype": element_dtype(tensor.elem_type),
        "shape": [d.dim_param or d.dim_value for d in tensor.shape.dim],
    }
