"""``python -m opmatrix.scaffold.onnx_process model.onnx``: its custom nodes as JSON, so that doit imports no onnx."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, shape_inference

from opmatrix.declaration.validation.operator import TENSOR_DTYPES
from opmatrix.scaffold.draft import domain_owner

MOST_ELEMENTS = 1000  # of a tensor attribute: cases.py has them as numbers


def describe(path: str) -> dict[str, Any]:
    """Return the nodes in domains that ONNX and ONNX Runtime do not own, in the model's order, or an error."""
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # its type differs between the implementations of protobuf
        return {"error": f"{type(error).__name__}: {error}"}
    domains = sorted({o.domain for o in model.opset_import})
    if not model.HasField("graph"):
        return {"error": "it contains no graph"}
    with suppress(Exception):  # of any type; shapes and dtypes that are not inferred stay unknown
        model = shape_inference.infer_shapes(model)
    functions = {(f.domain, f.name) for f in model.functions}
    imported = {o.domain: o.version for o in model.opset_import}
    described = [*_of_graph(model.graph, {}), *(_described(n, {}) for f in model.functions for n in f.node)]
    nodes = [
        n | {"imported": imported.get(n["domain"], 1)}
        for n in described
        if not domain_owner(n["domain"]) and (n["domain"], n["op_type"]) not in functions
    ]
    misplaced = dict.fromkeys(n["op_type"] for n in described if domain_owner(n["domain"]) == "ONNX" and _is_unknown(n))
    named = sorted(f"{d}::{n}" for d, n in functions)
    return {"nodes": nodes, "domains": domains, "functions": named, "misplaced": [*misplaced]}


def _is_unknown(node: dict[str, Any]) -> bool:
    return not onnx.defs.has(node["op_type"], "" if node["domain"] == "ai.onnx" else node["domain"])


def _of_graph(graph: GraphProto, outer: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    values = outer | {v.name: _value(v) for v in (*graph.input, *graph.value_info, *graph.output)}
    values |= {i.name: {"dtype": _dtype(i.data_type), "shape": list(i.dims)} for i in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain and node.output:
            for attribute in node.attribute:
                if attribute.name == "value":
                    values[node.output[0]] = {"dtype": _dtype(attribute.t.data_type), "shape": list(attribute.t.dims)}
    for node in graph.node:
        yield _described(node, values)
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.type == AttributeProto.GRAPH else []), *attribute.graphs):
                yield from _of_graph(inner, values)


def _value(value: ValueInfoProto) -> dict[str, Any]:
    tensor: TypeProto.Tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return {"dtype": value.type.WhichOneof("value"), "shape": None}
    shape = None
    if tensor.HasField("shape"):
        shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    return {"dtype": _dtype(tensor.elem_type), "shape": shape}


def _dtype(number: int) -> str | None:
    """Return the name of an ONNX element type in a declaration, None for one that is not set."""
    if not number:
        return None
    if number not in TensorProto.DataType.values():
        return f"of the element type {number}"
    name: str = TensorProto.DataType.Name(number).lower()
    name = {"float": "float32", "double": "float64"}.get(name, name)
    return name.replace("float8e", "float8_e")


def _described(node: NodeProto, values: dict[str, dict[str, Any]]) -> dict[str, Any]:
    unknown = {"dtype": None, "shape": None}
    return {
        "name": node.name,
        "domain": node.domain,
        "op_type": node.op_type,
        "inputs": [{"name": n, **values.get(n, unknown)} if n else None for n in node.input],
        "outputs": [{"name": n, **values.get(n, unknown)} if n else None for n in node.output],
        "attributes": {a.name: _attribute(a) for a in node.attribute},
    }


def _attribute(attribute: AttributeProto) -> dict[str, Any]:
    kind = AttributeProto.AttributeType.Name(attribute.type).lower()
    value: Any = None
    if kind in ("float", "int", "floats", "ints", "string", "strings"):
        value = onnx.helper.get_attribute_value(attribute)
    texts = [value] if kind == "string" else value if kind == "strings" else []
    if any(b"\0" in one or one.decode(errors="replace").encode() != one for one in texts):
        return {"kind": "bytes", "value": None}
    if kind == "string":
        value = value.decode()
    if kind == "strings":
        value = [one.decode() for one in value]
    if kind == "tensor":
        return {"kind": kind} | _tensor(attribute.t)
    return {"kind": kind, "value": value}


def _tensor(tensor: TensorProto) -> dict[str, Any]:
    """Return the dtype and the sizes of a tensor, and its elements as nested lists; without those if they are many, or
    in another file, or of a dtype that has none in JSON."""
    dtype, value = _dtype(tensor.data_type), None
    if dtype in TENSOR_DTYPES and math.prod(tensor.dims) <= MOST_ELEMENTS and not tensor.external_data:
        value = onnx.numpy_helper.to_array(tensor).tolist()
    return {"dtype": dtype, "shape": list(tensor.dims), "value": value}


def main(path: str) -> str:
    """Return what `describe` returns as JSON."""
    try:
        return json.dumps(describe(path))
    except TypeError:  # protobuf gives such a name as bytes
        return json.dumps({"error": "a name in it is not UTF-8"})


if __name__ == "__main__":
    print(main(sys.argv[1]))
