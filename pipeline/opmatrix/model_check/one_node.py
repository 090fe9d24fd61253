"""Make a model of one node of a model, for ONNX Runtime and for onnx.reference. Imports onnx alone."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from opmatrix.errors import VerifyError

_IGNORED = {"LSTM": {"clip", "activations"}, "GRU": {"clip", "activations"}, "RNN": {"clip"}}


def one_node(
    node: NodeProto, model: ModelProto, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]
) -> ModelProto:
    """Return a model of one node, with the opset imports of its model, which has no functions."""
    graph = helper.make_graph([node], "node", inputs, outputs)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def for_reference(node: NodeProto, model: ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> ModelProto:
    """Return a model of one node, without types, that onnx.reference evaluates as ONNX describes the node.

    onnx 1.23 evaluates some nodes of older opsets as those of newer ones. Raises VerifyError for an attribute or an
    input that it ignores.
    """
    infos = ([ValueInfoProto(name=name) for name in names] for names in (inputs, outputs))
    made = one_node(node, model, *infos)
    imported = next((o for o in made.opset_import if o.domain in ("", "ai.onnx")), None)
    if node.domain not in ("", "ai.onnx") or not imported:
        return made
    (changed,) = made.graph.node
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
        del made.graph.node[:]
        made.graph.node.extend(nodes)
    elif node.op_type in ("LSTM", "GRU", "RNN"):
        ignored = [a.name for a in node.attribute if a.name in _IGNORED[node.op_type]]
        ignored += ["sequence_lens"] if len(node.input) > 4 and node.input[4] else []
        if ignored:
            raise VerifyError(f"onnx.reference ignores {' and '.join(ignored)} of {node.op_type}")
    return made


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
