"""Walk the nodes of a model, with its subgraphs and functions, and label a node for a message. Imports onnx alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto

from opmatrix.lowering.graph import STANDARD, qualified
from opmatrix.spec import OpSpec

ORIGIN = "opmatrix.origin"
"""The key in the metadata of a node from a function: its value is the label of the node, with its call."""


def node_label(node: NodeProto) -> str:
    """Return a node's op type, and its name, or that of its first output; of a node from a function, also its call."""
    for entry in node.metadata_props:
        if entry.key == ORIGIN:
            return str(entry.value)
    label = repr(node.name) if node.name else f"(gives {next(iter(node.output), '')!r})"
    return f"{qualified(node)} {label}"


def spec_of(node: NodeProto, operators: Sequence[OpSpec]) -> OpSpec | None:
    """Return the declaration of a node's operator, or None where this project has none."""
    return next((o for o in operators if (o.onnx.domain, o.onnx.op_type) == (node.domain, node.op_type)), None)


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node of the graph, its subgraphs and the model's functions."""
    yield from walk(model.graph.node)
    for function in model.functions:
        yield from walk(function.node)


def walk(found: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield each node, followed by those of its subgraphs."""
    for node in found:
        yield node
        for graph in subgraphs(node):
            yield from walk(graph.node)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the subgraphs of a node, such as the branches of an If."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the constants of the graph, its subgraphs and the model's functions."""
    yield from model.graph.initializer
    for node in nodes(model):
        for graph in subgraphs(node):
            yield from graph.initializer
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors


def captured(node: NodeProto) -> set[str]:
    """Return the names of the outer values that a node's subgraphs use."""
    found: set[str] = set()
    for graph in subgraphs(node):
        own = {v.name for v in (*graph.input, *graph.initializer)} | {o for n in graph.node for o in n.output}
        used = {name for n in graph.node for name in (*n.input, *captured(n)) if name}
        found |= (used | {v.name for v in graph.output}) - own
    return found


def value_names(graph: GraphProto) -> set[str]:
    """Return the names of all values of a graph and its subgraphs."""
    found = {v.name for v in (*graph.input, *graph.output, *graph.initializer)}
    found |= {s.values.name for s in graph.sparse_initializer}
    for node in graph.node:
        found.update(node.input, node.output, *map(value_names, subgraphs(node)))
    return found


def opsets(found: ModelProto | FunctionProto) -> dict[str, int]:
    """Return the version of each domain that a model or a function imports."""
    return {domain_of(o): o.version for o in found.opset_import}


def domain_of(found: NodeProto | OperatorSetIdProto | FunctionProto) -> str:
    """Return the domain, "" for "ai.onnx" too."""
    return "" if found.domain in STANDARD else found.domain
