"""Build the model that `publish` keeps with a published schema, from that schema alone. Needs onnx alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import AttributeProto, ModelProto, helper

from opmatrix.export.one_node_model import make_attribute, model_of, value_info
from opmatrix.spec import AttributeKind
from opmatrix.testdata.arrays import Array


def published_model(
    schema: Mapping[str, Any],
    inputs: Mapping[str, Sequence[Array]],
    outputs: Sequence[Array],
    *,
    attributes: Mapping[str, Any],
    opset: int,
) -> ModelProto:
    """Return the model for the tensors of each input. `attributes` may omit those with a default.

    It has the sizes of the tensors, and the lowest opset and IR version, which every ONNX Runtime reads.
    """
    fed: dict[str, Array] = {}
    names: list[str] = []
    for name, declared in schema["inputs"].items():
        named = {f"{name}_{n}" if declared.get("variadic") else name: a for n, a in enumerate(inputs.get(name, ()))}
        fed |= named
        names += list(named) or ([] if declared.get("variadic") else [""])
    while not names[-1] and not any(declared.get("variadic") for declared in schema["inputs"].values()):
        names.pop()
    node = helper.make_node(schema["op_type"], names, list(schema["outputs"]), domain=schema["domain"])
    for name, declared in schema["attributes"].items():
        value = attributes.get(name, declared.get("default"))
        if not declared.get("torch_only") and value is not None:
            node.attribute.append(_attribute(name, declared["kind"], value))
    graph_inputs, graph_outputs = (
        [value_info(name, array.dtype, array.shape) for name, array in values]
        for values in (fed.items(), zip(schema["outputs"], outputs, strict=True))
    )
    version, name = schema["since_version"], schema["op_type"]
    return model_of(node, graph_inputs, graph_outputs, name=name, opset=opset, version=version)


def _attribute(name: str, kind: AttributeKind, value: Any) -> AttributeProto:
    """Return an attribute of a declared kind; a published schema has floats as strings, with all digits."""
    one = {"float": float, "int": int, "bool": int, "string": str}[kind.removesuffix("s")]
    return make_attribute(name, kind, [one(v) for v in value] if kind.endswith("s") else one(value))
