"""What ONNX Runtime repairs in a graph as it reads it: the order of the nodes, and sparse constants.

ONNX demands sorted nodes, and most of its operators take no sparse tensors, so its inference and its reference need the
same repairs. Imports onnx alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from opmatrix.model_check.graph_walk import captured, subgraphs


def needs_repair(graph: GraphProto) -> bool:
    """Return whether `repair` changes a graph."""
    if graph.sparse_initializer or not is_sorted(graph.node) or any(map(_sparse_values, graph.node)):
        return True
    return any(needs_repair(inner) for node in graph.node for inner in subgraphs(node))


def repair(graph: GraphProto) -> None:
    """Sort the nodes of a graph and of its subgraphs, and make its sparse constants dense. A cycle stays."""
    make_dense(graph)
    if not is_sorted(graph.node):
        nodes, _ = _sorted(graph.node)
        del graph.node[:]
        graph.node.extend(nodes)
    for node in graph.node:
        for attribute in _sparse_values(node):
            dense = _dense(attribute.sparse_tensor)
            attribute.Clear()
            attribute.name, attribute.type = "value", attribute.TENSOR
            attribute.t.CopyFrom(dense)
        for inner in subgraphs(node):
            repair(inner)


def make_dense(graph: GraphProto) -> None:
    """Make the sparse initializers of a graph dense, as ONNX Runtime does."""
    graph.initializer.extend(_dense(sparse) for sparse in graph.sparse_initializer)
    del graph.sparse_initializer[:]


def is_sorted(nodes: Iterable[NodeProto]) -> bool:
    """Return whether no node takes a value of a later one."""
    taken: set[str] = set()
    for node in nodes:
        taken.update(_taken(node))
        if not taken.isdisjoint(output for output in node.output if output):
            return False
    return True


def _taken(node: NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    yield from captured(node)


def cycle(graph: GraphProto) -> list[tuple[NodeProto, str]]:
    """Return the nodes of the first cycle of a graph or one of its subgraphs, each with the value that it gives to the
    next, and the last to the first; [] where there is none."""
    _, found = ([], []) if is_sorted(graph.node) else _sorted(graph.node)
    if found:
        pairs = zip(found, [*found[1:], found[0]], strict=True)
        return [(node, next(o for o in node.output if o and o in _taken(then))) for node, then in pairs]
    inner = (cycle(subgraph) for node in graph.node for subgraph in subgraphs(node))
    return next((found for found in inner if found), [])


def _sorted(nodes: Sequence[NodeProto]) -> tuple[list[NodeProto], list[NodeProto]]:
    """Return the nodes, each after those whose outputs it takes, else in their order, and no others. Where there is a
    cycle, return the nodes as they are, and those of a cycle, each before one that takes its output."""
    given = {output: at for at, node in enumerate(nodes) for output in node.output if output}
    before = [{given[name] for name in _taken(node) if name in given} for node in nodes]
    found: list[NodeProto] = []
    done: set[int] = set()
    for first in range(len(nodes)):
        stack = [(first, iter(sorted(before[first] - done)))] if first not in done else []
        open_nodes = {first}
        while stack:
            at, remaining = stack[-1]
            following = next((other for other in remaining if other not in done), None)
            if following is None:
                stack.pop()
                done.add(at)
                found.append(nodes[at])
            elif following in open_nodes:
                around = [index for index, _ in stack]
                start = around.index(following)
                return [*nodes], [nodes[following], *(nodes[index] for index in reversed(around[start + 1 :]))]
            else:
                open_nodes.add(following)
                stack.append((following, iter(sorted(before[following] - done))))
    return found, []


def _sparse_values(node: NodeProto) -> list[AttributeProto]:
    return [a for a in node.attribute if a.name == "sparse_value"] if node.op_type == "Constant" else []


def _dense(sparse: SparseTensorProto) -> TensorProto:
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    places = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dense.shape)
    dense[places] = values
    return numpy_helper.from_array(dense, sparse.values.name)
