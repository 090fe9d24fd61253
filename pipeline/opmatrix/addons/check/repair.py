"""What ONNX Runtime repairs in a graph as it reads it, and its inference and its reference need as well: the order of
the nodes, and sparse constants. Values in other files: onnx reads none through a link or a path with "..", ONNX Runtime
does within the model's folder, as in caches of downloaded models. Imports onnx alone."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper

from opmatrix.addons.check.graph_walk import captured, subgraphs, tensors
from opmatrix.basics import finding
from opmatrix.basics.errors import VerifyError
from opmatrix.basics.finding import Finding


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


def text_findings(model: ModelProto) -> Iterator[Finding]:
    """Yield the first constant with a string that is not UTF-8."""
    if found := next((tensor for tensor in tensors(model) if not is_readable(tensor)), None):
        text = f"the constant {found.name!r} has a string that is not UTF-8, which ONNX demands: "
        yield finding.note("nodes", text + repr(b" ".join(found.string_data)[:40]))


def external_data_findings(model: ModelProto, path: Path) -> Iterator[Finding]:
    """Yield the first file of external data that cannot be read, and why."""
    for tensor in tensors(model):
        if is_external(tensor) and (fault := _fault(tensor, path)):
            text, remedy = fault
            yield finding.wrong("nodes", f"the values of {tensor.name!r} {text}", remedy)
            return


def is_external(tensor: TensorProto) -> bool:
    """Return whether the values of a tensor are in another file, which a model may be read without."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def is_readable(tensor: TensorProto) -> bool:
    """Return whether all strings of a tensor are UTF-8, which ONNX demands and ONNX Runtime does not."""
    try:
        return all(text.decode() is not None for text in tensor.string_data)
    except UnicodeDecodeError:
        return False


def load(path: Path) -> ModelProto:
    """Return a model with the values that are in other files. Raises VerifyError where one cannot be read."""
    model = onnx.load_model(path, load_external_data=False)
    for tensor in filter(is_external, tensors(model)):
        if fault := _fault(tensor, path):
            raise VerifyError(f"the values of {tensor.name!r} {fault[0]}")
        file, offset, length = _place(tensor, path)
        with file.open("rb") as opened:
            opened.seek(offset)
            tensor.raw_data = opened.read(length)
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]
    return model


def _fault(tensor: TensorProto, path: Path) -> tuple[str, str] | None:
    place = _entries(tensor).get("location", "")
    if not os.path.isfile(path.parent / place):  # noqa: PTH113 - Path.is_file raises for a long name
        return (
            f"are in {place!r}, which is not next to the model",
            "Copy it along with the model, or save the model with its data within",
        )
    file, folders = (path.parent / place).resolve(), (path.parent.resolve(), path.resolve().parent)
    if Path(place).is_absolute() or not any(file.is_relative_to(folder) for folder in folders):
        return (
            f"are in {place!r}, outside the folder of the model, where ONNX allows none",
            "Copy the file next to the model, and give its name as the location: onnx.save(..., location=NAME)",
        )
    try:
        file, offset, length = _place(tensor, path)
    except ValueError:
        return "have an offset or a length that is no number", "Save the model with its data again"
    if offset < 0 or length < 0 or offset + length > (size := file.stat().st_size):
        return (
            f"are the bytes {offset} to {offset + length} of {place!r}, which has {size}",
            "The file is cut, or of another model: copy it again",
        )
    return None


def _place(tensor: TensorProto, path: Path) -> tuple[Path, int, int]:
    """Return the file, the first byte, and the number of bytes: up to the end if there is none."""
    entries = _entries(tensor)
    file, offset = path.parent / entries.get("location", ""), int(entries.get("offset") or 0)
    return file, offset, int(entries.get("length") or _bytes(tensor) or max(file.stat().st_size - offset, 0))


def _bytes(tensor: TensorProto) -> int:
    """Return how many bytes the values of a tensor take; 0 for dtypes that share bytes, and unknown ones."""
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except (KeyError, ValueError):
        return 0
    shared = re.search(r"INT[24]$|FLOAT4", TensorProto.DataType.Name(tensor.data_type))
    return 0 if shared else math.prod(tensor.dims) * dtype.itemsize


def _entries(tensor: TensorProto) -> Mapping[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}
