"""The model of one node, from the declaration alone: for what torch cannot express. Needs onnx alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import AttributeProto, ModelProto, TensorProto, ValueInfoProto, helper

from pipeline import evolution
from pipeline.feeds import node_inputs
from pipeline.models.demand import Demand
from pipeline.models.model_gates import MAX_IR_VERSION
from pipeline.models.value_info import ValueInfo
from pipeline.schema import attribute_values, in_onnx
from pipeline.spec import AttributeKind, DType, Model, OpSpec

_ELEMENTS: Mapping[DType, int] = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
    "string": TensorProto.STRING,
}
# ONNX has no bools among attributes.
_ATTRIBUTES: Mapping[AttributeKind, AttributeProto.AttributeType] = {
    "float": AttributeProto.FLOAT,
    "int": AttributeProto.INT,
    "bool": AttributeProto.INT,
    "string": AttributeProto.STRING,
    "floats": AttributeProto.FLOATS,
    "ints": AttributeProto.INTS,
    "bools": AttributeProto.INTS,
    "strings": AttributeProto.STRINGS,
}


def one_node(demand: Demand) -> ModelProto:
    """Return the model: the declared node alone, with every attribute, between the declared inputs and outputs."""
    spec, declared = demand.spec, demand.signature
    node = helper.make_node(
        spec.onnx.op_type,
        list(node_inputs(spec, demand.model)),
        [v.name for v in declared.outputs],
        domain=spec.onnx.domain,
    )
    node.attribute.extend(attributes(spec, demand.model))
    graph = helper.make_graph(
        [node], spec.name, [_value_info(v) for v in declared.inputs], [_value_info(v) for v in declared.outputs]
    )
    opset = helper.make_opsetid("", demand.cell.opset)
    # As low as the opset allows, so that an old ONNX Runtime reads it as well.
    ir_version = min(helper.find_min_ir_version_for([opset]), MAX_IR_VERSION)
    imports = [opset, helper.make_opsetid(spec.onnx.domain, demand.model.domain_version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, producer_name="opmatrix")


def attributes(spec: OpSpec, model: Model) -> Iterator[AttributeProto]:
    """Yield every attribute as the node of a model has it, defaults included."""
    values = attribute_values(spec, model)
    for attribute in evolution.written(spec, model.domain_version):
        if (value := values.get(attribute.name, attribute.default)) is not None:
            value = in_onnx(attribute, value)
            yield helper.make_attribute(attribute.name, value, attr_type=_ATTRIBUTES[attribute.kind])


def _value_info(value: ValueInfo) -> ValueInfoProto:
    return helper.make_tensor_value_info(value.name, _ELEMENTS[value.dtype], list(value.shape))
