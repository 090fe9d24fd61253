"""Walk the nodes of a model, with its subgraphs and functions; print nodes, types and values; make a model of one node,
for ONNX Runtime and for onnx.reference. Imports onnx alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
)

from opmatrix.basics.errors import VerifyError
from opmatrix.data.arrays import dtype_name
from opmatrix.export.signature import element_dtype
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


def walk(graph_nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield each node, followed by those of its subgraphs."""
    for node in graph_nodes:
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


def inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs without the initializers, which models before IR version 4 list as inputs too."""
    constants = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in constants]


def captured(node: NodeProto) -> set[str]:
    """Return the names of the outer values that a node's subgraphs use."""
    outer: set[str] = set()
    for graph in subgraphs(node):
        own = {v.name for v in (*graph.input, *graph.initializer)} | {o for n in graph.node for o in n.output}
        used = {name for n in graph.node for name in (*n.input, *captured(n)) if name}
        outer |= (used | {v.name for v in graph.output}) - own
    return outer


def value_names(graph: GraphProto) -> set[str]:
    """Return the names of all values of a graph and its subgraphs."""
    names = {v.name for v in (*graph.input, *graph.output, *graph.initializer)}
    names |= {s.values.name for s in graph.sparse_initializer}
    for node in graph.node:
        names.update(node.input, node.output, *map(value_names, subgraphs(node)))
    return names


def opsets(scope: ModelProto | FunctionProto) -> dict[str, int]:
    """Return the version of each domain that a model or a function imports."""
    return {domain_of(o): o.version for o in scope.opset_import}


def domain_of(proto: NodeProto | OperatorSetIdProto | FunctionProto) -> str:
    """Return the domain, "" for "ai.onnx" too."""
    return "" if proto.domain in STANDARD else proto.domain


def format_type(onnx_type: TypeProto) -> str:
    """Return an ONNX type as ``float32[2, C, ?]``."""
    tensor = onnx_type.tensor_type
    if not onnx_type.HasField("tensor_type"):
        return str(onnx_type.WhichOneof("value") or "of unknown type").removesuffix("_type")
    known = tensor.elem_type in TensorProto.DataType.values()
    dtype = (element_dtype(tensor.elem_type) if known else "") or "unknown dtype"
    if not tensor.HasField("shape"):
        return f"{dtype} of unknown rank"
    sizes = (d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in tensor.shape.dim)
    return f"{dtype}[{', '.join(sizes)}]"


def format_value(value: Any) -> str:
    """Return dtype and shape as ``float32[2, 3]``; of a list, those of its elements; of anything else, its type."""
    if isinstance(value, np.ndarray):
        return f"{dtype_name(value)}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    return "nothing" if value is None else type(value).__name__


def format_range(value: Any) -> str:
    """Return dtype, shape and range as ``float32[2, 3] in -1.2 to 3.4``; for a value that is no tensor, its type."""
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    if value.dtype == np.object_ or not value.size:
        return format_value(value)
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    odd = value.size - finite.size
    limits = f" in {finite.min():.4g} to {finite.max():.4g}" if finite.size else ""
    return format_value(value) + limits + (f" and {odd} NaN or infinite" if odd else "")


_IGNORED = {"LSTM": {"clip", "activations"}, "GRU": {"clip", "activations"}, "RNN": {"clip"}}


def typed(values: Mapping[str, Any]) -> list[ValueInfoProto]:
    """Return the inputs of a model with these values. Raises VerifyError where one is no tensor."""
    if not all(isinstance(value, np.ndarray) for value in values.values()):
        raise VerifyError("an input is no tensor")
    dtypes = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in values.items()}
    return [helper.make_tensor_value_info(name, dtypes[name], value.shape) for name, value in values.items()]


def model_of(
    nodes: Sequence[NodeProto],
    model: ModelProto,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
) -> ModelProto:
    """Return a model of some nodes, with the opset imports of their model, which has no functions."""
    graph = helper.make_graph(nodes, "node", inputs, outputs)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def for_reference(node: NodeProto, model: ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> ModelProto:
    """Return a model of one node, without types, that onnx.reference evaluates as ONNX describes the node.

    onnx 1.23 evaluates some nodes of older opsets as those of newer ones. Raises VerifyError for an attribute or an
    input that it ignores.
    """
    infos = ([ValueInfoProto(name=name) for name in names] for names in (inputs, outputs))
    alone = model_of([node], model, *infos)
    imported = next((o for o in alone.opset_import if o.domain in ("", "ai.onnx")), None)
    if node.domain not in ("", "ai.onnx") or not imported:
        return alone
    (changed,) = alone.graph.node
    if node.op_type == "BatchNormalization" and 7 <= imported.version <= 13 and len(outputs) == 1:
        if all(a.i for a in node.attribute if a.name == "spatial"):  # one output alone means inference
            imported.version = 15  # the first whose node says what it computes
            epsilon = [a for a in node.attribute if a.name == "epsilon"]
            del changed.attribute[:]
            changed.attribute.extend(epsilon)
    elif node.op_type == "DequantizeLinear":  # onnx has none before version 19, which computes the same
        imported.version = max(imported.version, 19)
    elif node.op_type == "RoiAlign" and imported.version < 16:
        imported.version = 16
        changed.attribute.append(helper.make_attribute("coordinate_transformation_mode", "output_half_pixel"))
    elif node.op_type in ("Softmax", "LogSoftmax", "Hardmax") and imported.version < 13:
        imported.version = 13
        nodes = _flattened(node)
        del alone.graph.node[:]
        alone.graph.node.extend(nodes)
    elif node.op_type in ("LSTM", "GRU", "RNN"):
        ignored = [a.name for a in node.attribute if a.name in _IGNORED[node.op_type]]
        ignored += ["sequence_lens"] if len(node.input) > 4 and node.input[4] else []
        if ignored:
            raise VerifyError(f"onnx.reference ignores {' and '.join(ignored)} of {node.op_type}")
    return alone


def _flattened(node: NodeProto) -> list[NodeProto]:
    """Return a Softmax or its like of opset 1 to 12, which flattens its input from an axis on, by default 1."""
    (x,), (y,) = node.input, node.output
    shape, flat, result = (f"{x} {y} {what}" for what in ("shape", "flat", "result"))
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    return [
        helper.make_node("Shape", [x], [shape]),
        helper.make_node("Flatten", [x], [flat], axis=axis),
        helper.make_node(node.op_type, [flat], [result], axis=1),
        helper.make_node("Reshape", [result, shape], [y]),
    ]
