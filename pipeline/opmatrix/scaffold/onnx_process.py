"""``python -m opmatrix.scaffold.onnx_process model.onnx``: its custom nodes as JSON, so that doit imports no onnx."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    shape_inference,
)

from opmatrix.declaration.validation.rules import TENSOR_DTYPES
from opmatrix.project.dtypes import FACTS, element_name
from opmatrix.scaffold.draft import domain_owner

_MOST_CALLS = 10_000  # of functions, which shape inference follows one by one
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
    reader = _Reader({(f.domain, f.name, f.overload): f for f in model.functions})
    imported = {o.domain: o.version for o in model.opset_import}
    try:
        if reader.calls() < _MOST_CALLS:
            with suppress(Exception):  # of any type; shapes and dtypes that are not inferred stay unknown
                model = shape_inference.infer_shapes(model)
        described = [*reader.of_graph(model.graph, _Scope(values={}, attributes={}, imported=imported))]
        described += reader.of_uncalled()
    except RecursionError as error:
        return {"error": str(error)}
    known = {(domain, name) for domain, name, _ in reader.functions}
    nodes = [n for n in described if not domain_owner(n["domain"]) and (n["domain"], n["op_type"]) not in known]
    misplaced = dict.fromkeys(n["op_type"] for n in described if domain_owner(n["domain"]) == "ONNX" and _is_unknown(n))
    named = sorted(f"{d}::{n}" for d, n in known)
    return {"nodes": nodes, "domains": domains, "functions": named, "misplaced": [*misplaced]}


def _is_unknown(node: dict[str, Any]) -> bool:
    return not onnx.defs.has(node["op_type"], "" if node["domain"] == "ai.onnx" else node["domain"])


_Key = tuple[str, str, str]  # domain, name and overload of a function
_UNKNOWN: Mapping[str, Any] = {"dtype": None, "shape": None}


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """What a node can refer to: values, the attributes of the function that it is in, and versions of domains."""

    values: Mapping[str, Mapping[str, Any]]
    attributes: Mapping[str, AttributeProto]
    imported: Mapping[str, int]


@dataclass(frozen=True)
class _Reader:
    """Describes nodes, those of a function once for each way in which it is called."""

    functions: Mapping[_Key, FunctionProto]
    called: dict[_Key, set[str]] = field(default_factory=dict)

    def of_graph(self, graph: GraphProto, scope: _Scope) -> Iterator[dict[str, Any]]:
        values = {**scope.values, **{v.name: _value(v) for v in (*graph.input, *graph.value_info, *graph.output)}}
        values |= {i.name: {"dtype": _dtype(i.data_type), "shape": list(i.dims)} for i in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and not node.domain and node.output:
                for attribute in node.attribute:
                    if attribute.name == "value":
                        of_tensor = {"dtype": _dtype(attribute.t.data_type), "shape": list(attribute.t.dims)}
                        values[node.output[0]] = of_tensor
        yield from self._of_nodes(graph.node, replace(scope, values=values))

    def _of_nodes(self, nodes: Iterable[NodeProto], scope: _Scope) -> Iterator[dict[str, Any]]:
        for node in nodes:
            attributes = _resolved(node.attribute, scope.attributes)
            described = _described(node, attributes, scope)
            yield described
            if (key := (node.domain, node.op_type, node.overload)) in self.functions:
                yield from self._of_call(key, attributes, described["inputs"])
            for inner in _graphs(attributes.values()):
                yield from self.of_graph(inner, scope)

    def _of_call(
        self, key: _Key, attributes: Mapping[str, AttributeProto], inputs: Sequence[Any]
    ) -> Iterator[dict[str, Any]]:
        found = [one and {"dtype": one["dtype"], "shape": one["shape"]} for one in inputs]
        call = repr((sorted((n, a.SerializeToString()) for n, a in attributes.items()), found))
        if call in (calls := self.called.setdefault(key, set())):
            return
        calls.add(call)
        function = self.functions[key]
        values = {name: one for name, one in zip(function.input, found, strict=False) if one}
        values |= {v.name: _value(v) for v in function.value_info}
        known = {a.name: a for a in function.attribute_proto} | dict(attributes)
        imported = {o.domain: o.version for o in function.opset_import}
        scope = _Scope(values=values, attributes=known, imported=imported)
        yield from self._of_nodes(function.node, scope)

    def calls(self) -> int:
        """Return how often functions are called if each is called once, with the calls that follow from each."""
        known: dict[_Key, int] = {}

        def count(key: _Key, callers: tuple[_Key, ...]) -> int:
            if key in callers:
                raise RecursionError(f"the function {key[0]}::{key[1]} calls itself, which ONNX forbids")
            if key not in known:
                called = [(n.domain, n.op_type, n.overload) for n in _with_inner(self.functions[key].node)]
                known[key] = sum(1 + count(one, (*callers, key)) for one in called if one in self.functions)
            return known[key]

        return sum(count(key, ()) for key in self.functions)

    def of_uncalled(self) -> Iterator[dict[str, Any]]:
        """Yield the nodes of functions that no node calls, without the attributes that only a call has."""
        for key in self.functions:
            if key not in self.called:
                yield from self._of_call(key, {}, [])


def _graphs(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    for attribute in attributes:
        yield from (attribute.g,) if attribute.type == AttributeProto.GRAPH else attribute.graphs


def _with_inner(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for graph in _graphs(node.attribute):
            yield from _with_inner(graph.node)


def _resolved(written: Iterable[AttributeProto], outer: Mapping[str, AttributeProto]) -> dict[str, AttributeProto]:
    """Return attributes with the values of those of the function that they refer to, without those that it lacks."""
    found = {a.name: outer.get(a.ref_attr_name) if a.ref_attr_name else a for a in written}
    return {name: value for name, value in found.items() if value is not None}


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
    name: str = TensorProto.DataType.Name(number)
    return {element_name(dtype): dtype for dtype in FACTS}.get(name, name.lower())


def _described(node: NodeProto, attributes: Mapping[str, AttributeProto], scope: _Scope) -> dict[str, Any]:
    return {
        "name": node.name,
        "domain": node.domain,
        "op_type": node.op_type,
        "inputs": [{"name": n, **scope.values.get(n, _UNKNOWN)} if n else None for n in node.input],
        "outputs": [{"name": n, **scope.values.get(n, _UNKNOWN)} if n else None for n in node.output],
        "attributes": {name: _attribute(value) for name, value in attributes.items()},
        "imported": scope.imported.get(node.domain, 1),
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
