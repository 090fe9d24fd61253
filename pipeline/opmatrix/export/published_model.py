"""The model that is kept beside a published schema: one node, made of that schema and not of the declaration.

Needs onnx alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, ValueInfoProto, helper

from opmatrix.export.one_node_model import make_attribute, model_of
from opmatrix.spec import AttributeKind
from opmatrix.testdata.arrays import Array


def kept_model(
    schema: Mapping[str, Any],
    given: Mapping[str, Sequence[Array]],
    outputs: Sequence[Array],
    *,
    attributes: Mapping[str, Any],
    opset: int,
) -> ModelProto:
    """Return the model for the tensors that are given for each input. `attributes` need not hold those with a default.

    Its sizes are those of the tensors, its opset and IR version as low as can be: every ONNX Runtime reads it.
    """
    fed: dict[str, Array] = {}
    taken: list[str] = []
    for name, said in schema["inputs"].items():
        named = {f"{name}_{n}" if said.get("variadic") else name: a for n, a in enumerate(given.get(name, ()))}
        fed |= named
        taken += list(named) or ([] if said.get("variadic") else [""])
    while not taken[-1] and not any(said.get("variadic") for said in schema["inputs"].values()):
        taken.pop()
    made = dict(zip(schema["outputs"], outputs, strict=True))
    node = helper.make_node(schema["op_type"], taken, list(made), domain=schema["domain"])
    for name, said in schema["attributes"].items():
        value = attributes.get(name, said.get("default"))
        if not said.get("torch_only") and value is not None:
            node.attribute.append(_attribute(name, said["kind"], value))
    version, name = schema["since_version"], schema["op_type"]
    return model_of(node, _values(fed), _values(made), name=name, opset=opset, version=version)


def _values(tensors: Mapping[str, Array]) -> list[ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(array.dtype)), array.shape)
        for name, array in tensors.items()
    ]


def _attribute(name: str, kind: AttributeKind, value: Any) -> AttributeProto:
    """Return an attribute of a declared kind; a float of a published schema is a text, which holds all of it."""
    one = {"float": float, "int": int, "bool": int, "string": str}[kind.removesuffix("s")]
    return make_attribute(name, kind, [one(v) for v in value] if kind.endswith("s") else one(value))
