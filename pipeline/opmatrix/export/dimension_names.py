"""Give the sizes of a model the names that were declared, where an exporter leaves its own. Needs onnx alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnx import ModelProto, TensorShapeProto

from opmatrix.export.signature import GraphSignature

_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def declared(proto: ModelProto, signature: GraphSignature) -> ModelProto:
    """Rename sizes throughout: the inputs say which symbol stands for which name, also within expressions.

    Leaves a model as it is in which one symbol would be two names, or two symbols one: then it is not the declared one,
    and the gates say so.
    """
    names: dict[str, str] = {}
    for value, wanted in zip(proto.graph.input, signature.inputs, strict=True):
        for dim, size in zip(value.type.tensor_type.shape.dim, wanted.shape, strict=False):
            if isinstance(size, str) and dim.dim_param and names.setdefault(dim.dim_param, size) != size:
                return proto
    if len({*names.values()}) == len(names):
        for dim in _dimensions(proto):
            dim.dim_param = _SYMBOL.sub(lambda found: names.get(found[0], found[0]), dim.dim_param)
    return proto


def for_lost_ones(proto: ModelProto, signature: GraphSignature) -> ModelProto:
    """Write the declared sizes of outputs where an exporter lost them: where it made up a name, or has no shape at all.

    What it says of a size is left to the gates, a number above all.
    """
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


def _dimensions(proto: ModelProto) -> Iterator[TensorShapeProto.Dimension]:
    graph = proto.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from (dim for dim in value.type.tensor_type.shape.dim if dim.dim_param)
