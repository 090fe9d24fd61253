"""Give the sizes of a model the names that were declared, where an exporter leaves its own. Needs onnx alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnx import ModelProto, TensorShapeProto

from pipeline.models.value_info import Signature

_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def declared(proto: ModelProto, signature: Signature) -> ModelProto:
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


def _dimensions(proto: ModelProto) -> Iterator[TensorShapeProto.Dimension]:
    graph = proto.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from (dim for dim in value.type.tensor_type.shape.dim if dim.dim_param)
