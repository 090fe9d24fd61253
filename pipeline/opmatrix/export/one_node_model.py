"""The model of one node, from the declaration alone: for what torch cannot express. Needs onnx alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnx import AttributeProto, ModelProto, NodeProto, ValueInfoProto, helper

from opmatrix.declaration import schema_versions
from opmatrix.declaration.model_inputs import node_inputs
from opmatrix.declaration.torch_signature import attribute_values, onnx_kind, onnx_value
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.signature import ValueInfo
from opmatrix.matrix.cells import ir
from opmatrix.spec import AttributeKind, Model, OpSpec
from opmatrix.testdata.dtypes import numpy_dtype


def one_node(demand: ExpectedModel) -> ModelProto:
    """Return the model: the declared node alone, with every attribute, between the declared inputs and outputs."""
    spec, declared = demand.spec, demand.signature
    node = helper.make_node(
        spec.onnx.op_type,
        list(node_inputs(spec, demand.model)),
        [v.name for v in declared.outputs],
        domain=spec.onnx.domain,
    )
    node.attribute.extend(attributes(spec, demand.model))
    inputs, outputs = ([_value_info(v) for v in values] for values in (declared.inputs, declared.outputs))
    version = demand.model.domain_version
    return model_of(node, inputs, outputs, name=spec.name, opset=demand.cell.opset, version=version)


def model_of(
    node: NodeProto,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    *,
    name: str,
    opset: int,
    version: int,
) -> ModelProto:
    """Return the model of a custom node, `version` being that of its domain; `name` is the graph's.

    Its IR version is as low as the opset allows, so that an old ONNX Runtime reads it as well.
    """
    return helper.make_model(
        helper.make_graph([node], name, inputs, outputs),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(node.domain, version)],
        ir_version=ir("node", opset),
        producer_name="opmatrix",
    )


def attributes(spec: OpSpec, model: Model) -> Iterator[AttributeProto]:
    """Yield every attribute as the node of a model has it, defaults included."""
    values = attribute_values(spec, model)
    for attribute in schema_versions.attributes_at(spec, model.domain_version):
        if (value := values.get(attribute.name, attribute.default)) is not None:
            value = onnx_value(attribute, value)
            yield make_attribute(attribute.name, attribute.kind, value)


def make_attribute(name: str, kind: AttributeKind, value: Any) -> AttributeProto:
    """Return an attribute of a declared kind, with its type though it be an empty list."""
    return helper.make_attribute(name, value, attr_type=AttributeProto.AttributeType.Value(onnx_kind(kind)))


def _value_info(value: ValueInfo) -> ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(numpy_dtype(value.dtype))
    return helper.make_tensor_value_info(value.name, element, list(value.shape))
