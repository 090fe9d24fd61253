"""Make a model of one node of a model, for ONNX Runtime and for onnx.reference. Imports onnx alone."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto, NodeProto, ValueInfoProto, helper


def one_node(
    node: NodeProto, model: ModelProto, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]
) -> ModelProto:
    """Return a model of one node, with the opset imports of its model, which has no functions."""
    graph = helper.make_graph([node], "node", inputs, outputs)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def for_reference(node: NodeProto, model: ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> ModelProto:
    """Return a model of one node, without types, that onnx.reference evaluates as ONNX describes the node.

    onnx 1.23 evaluates each BatchNormalization of opset 7 to 13 as training. One output alone means inference. It lacks
    DequantizeLinear before version 19, which computes the same for the dtypes of version 10.
    """
    infos = ([ValueInfoProto(name=name) for name in names] for names in (inputs, outputs))
    made = one_node(node, model, *infos)
    imported = next((o for o in made.opset_import if o.domain in ("", "ai.onnx")), None)
    if node.domain in ("", "ai.onnx") and node.op_type == "BatchNormalization" and imported:
        per_channel = all(a.i for a in node.attribute if a.name == "spatial")
        if 7 <= imported.version <= 13 and per_channel and len(outputs) == 1:
            imported.version = 15  # the first whose node says what it computes
            (changed,) = made.graph.node
            epsilon = [a for a in node.attribute if a.name == "epsilon"]
            del changed.attribute[:]
            changed.attribute.extend(epsilon)
    if node.domain in ("", "ai.onnx") and node.op_type == "DequantizeLinear" and imported:
        imported.version = max(imported.version, 19)
    return made
