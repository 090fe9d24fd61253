"""What an export says about the models that it wrote, as JSON data. Needs onnx alone."""

from __future__ import annotations

import hashlib
from typing import Any

from onnx import AttributeProto, ModelProto, ValueInfoProto, helper


def describe(proto: ModelProto, content: bytes) -> dict[str, Any]:
    """Return nodes, opset imports, inputs and outputs of a model, and the hash of its file."""
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "ir_version": proto.ir_version,
        "opset_imports": {o.domain: o.version for o in sorted(proto.opset_import, key=lambda o: o.domain)},
        "inputs": [_value_info(v) for v in proto.graph.input],
        "outputs": [_value_info(v) for v in proto.graph.output],
        "nodes": [
            {
                "domain": n.domain,
                "op_type": n.op_type,
                "inputs": list(n.input),
                "outputs": list(n.output),
                "attributes": {a.name: _attribute(a) for a in sorted(n.attribute, key=lambda a: a.name)},
            }
            for n in proto.graph.node
        ],
    }


def refused(reason: Exception) -> dict[str, Any]:
    """Return what stands for a model that the lowering has refused, which is not written."""
    return {"refused": str(reason), "opset_imports": {}, "nodes": []}


def _value_info(value: ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    return {
        "name": value.name,
        "dtype": str(helper.tensor_dtype_to_np_dtype(tensor.elem_type)),
        "shape": [d.dim_param or d.dim_value for d in tensor.shape.dim],
    }


def _attribute(attribute: AttributeProto) -> dict[str, str]:
    """Return type and value as text: NaN and infinities are no JSON."""
    return {
        "type": AttributeProto.AttributeType.Name(attribute.type),
        "value": repr(helper.get_attribute_value(attribute)),
    }
