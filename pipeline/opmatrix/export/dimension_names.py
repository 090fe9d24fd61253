"""Give the dynamic axes of a model the declared names, if an exporter leaves its own. Needs onnx alone."""

from __future__ import annotations

import re

from onnx import ModelProto, TensorShapeProto

from opmatrix.export.signature import GraphSignature

_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def rename(proto: ModelProto, signature: GraphSignature) -> ModelProto:
    """Rename the exporter's symbols, also within expressions; the inputs have the symbol of each declared name.

    Leaves a model unchanged if symbols and names do not correspond one to one: the gates reject it.
    """
    names: dict[str, str] = {}
    for value, wanted in zip(proto.graph.input, signature.inputs, strict=True):
        for dim, size in zip(value.type.tensor_type.shape.dim, wanted.shape, strict=False):
            if isinstance(size, str) and dim.dim_param and names.setdefault(dim.dim_param, size) != size:
                return proto
    if len({*names.values()}) == len(names):
        values = (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)
        for dim in (dim for value in values for dim in value.type.tensor_type.shape.dim if dim.dim_param):
            dim.dim_param = _SYMBOL.sub(lambda found: names.get(found[0], found[0]), dim.dim_param)
    return proto


def restore_lost(proto: ModelProto, signature: GraphSignature) -> ModelProto:
    """Write the declared sizes of outputs that have no shape or an invented name; leave all others to the gates."""
    known = {size for value in signature.inputs for size in value.shape}
    for value, wanted in zip(proto.graph.output, signature.outputs, strict=True):
        shape = value.type.tensor_type.shape
        if not value.type.tensor_type.HasField("shape"):
            shape.dim.extend(TensorShapeProto.Dimension() for _ in wanted.shape)
        for dim, size in zip(shape.dim, wanted.shape, strict=False):
            if size is None or dim.HasField("dim_value") or dim.dim_param in known:
                continue
            if isinstance(size, int):
                dim.dim_value = size
            else:
                dim.dim_param = size
    return proto
