"""The nodes of a model, and how a message calls them. Needs onnx alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import GraphProto, ModelProto, NodeProto

from opmatrix.lowering.graph import STANDARD, qualified

# What ONNX itself defines.
ONNX_DOMAINS = (*STANDARD, "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training")


def called(node: NodeProto) -> str:
    """Return what a message calls a node: its op type, and its name, or that of its first output."""
    return (
        f"{qualified(node)} {node.name!r}"
        if node.name
        else f"{qualified(node)} (gives {next(iter(node.output), '')!r})"
    )


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node: of the graph, of the graphs within it, and of the model's own functions."""
    yield from within(model.graph.node)
    for function in model.functions:
        yield from within(function.node)


def within(found: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, and after each those of the graphs that it holds."""
    for node in found:
        yield node
        for graph in subgraphs(node):
            yield from within(graph.node)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that a node holds, such as the branches of an If."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def captured(node: NodeProto) -> set[str]:
    """Return the values that the graphs within a node take from around it."""
    found: set[str] = set()
    for graph in subgraphs(node):
        own = {v.name for v in (*graph.input, *graph.initializer)} | {o for n in graph.node for o in n.output}
        used = {name for n in graph.node for name in (*n.input, *captured(n)) if name}
        found |= (used | {v.name for v in graph.output}) - own
    return found


def opsets(model: ModelProto) -> dict[str, int]:
    """Return the version of each domain that a model imports."""
    return {"" if o.domain in STANDARD else o.domain: o.version for o in model.opset_import}
