"""Build models of one node from the declaration, for operators without a torch operator. Needs onnx alone.

Add a function with standard nodes to a model with a custom node, so that a runtime without the kernel can run it.

Format: FunctionProto, https://github.com/onnx/onnx/blob/main/docs/IR.md#functions
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from opmatrix.basics.errors import ExportError, one_line
from opmatrix.data.arrays import numpy_dtype
from opmatrix.data.reference import tensor_array
from opmatrix.declaration.models import node_inputs, node_outputs, output_names
from opmatrix.export.signature import ExpectedModel, Shape
from opmatrix.project.cells import ir_version
from opmatrix.signature import versions
from opmatrix.signature.signature import attribute_values, onnx_kind, onnx_name, onnx_value
from opmatrix.spec import AttributeKind, Model, OpSpec


def one_node(expected: ExpectedModel) -> ModelProto:
    """Return the model with the declared node alone, with all attributes and the declared inputs and outputs."""
    spec, declared = expected.spec, expected.signature
    node = helper.make_node(
        spec.onnx.op_type,
        list(node_inputs(spec, expected.model)),
        list(node_outputs(spec, expected.model)),
        domain=spec.onnx.domain,
    )
    node.attribute.extend(attributes(spec, expected.model))
    inputs, outputs = (
        [value_info(v.name, numpy_dtype(v.dtype), v.shape) for v in values]
        for values in (declared.inputs, declared.outputs)
    )
    version = expected.model.domain_version
    return model_of(node, inputs, outputs, name=spec.name, opset=expected.cell.opset, version=version)


def model_of(
    node: NodeProto,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    *,
    name: str,
    opset: int,
    version: int,
) -> ModelProto:
    """Return the model of a custom node; `version` is that of its domain, `name` that of the graph.

    The IR version is the lowest that the opset allows, so that an old ONNX Runtime can read it.
    """
    return helper.make_model(
        helper.make_graph([node], name, inputs, outputs),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(node.domain, version)],
        ir_version=ir_version("node", opset),
        producer_name="opmatrix",
    )


def attributes(spec: OpSpec, model: Model) -> Iterator[AttributeProto]:
    """Yield the attributes of a model's node, defaults included."""
    values = attribute_values(spec, model)
    for attribute in versions.attributes_at(spec, model.domain_version):
        if (value := values.get(attribute.name, attribute.default)) is not None:
            if attribute.kind == "tensor":
                made = numpy_helper.from_array(tensor_array(attribute, value))
                yield helper.make_attribute(onnx_name(attribute), made)
                continue
            value = onnx_value(attribute, value)
            yield make_attribute(onnx_name(attribute), attribute.kind, value)


def make_attribute(name: str, kind: AttributeKind, value: Any) -> AttributeProto:
    """Return an attribute of a declared kind; an empty list has its type too."""
    return helper.make_attribute(name, value, attr_type=AttributeProto.AttributeType.Value(onnx_kind(kind)))


def value_info(name: str, dtype: np.dtype[Any], shape: Shape) -> ValueInfoProto:
    """Return a graph input or output."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


MIN_IR_VERSION = 8  # the first that has functions


def with_function(proto: ModelProto, expected: ExpectedModel, body: Sequence[NodeProto]) -> ModelProto:
    """Return `proto` with a function for the declared node. `body` has the names of the graph's inputs and outputs.

    The body contains the attribute values of this model and is valid for no other. Raises ExportError if onnx's checker
    rejects the result.
    """
    made = ModelProto()
    made.CopyFrom(proto)
    made.ir_version = max(made.ir_version, MIN_IR_VERSION)
    spec, declared = expected.spec, expected.signature
    function = helper.make_function(
        spec.onnx.domain,
        spec.onnx.op_type,
        [v.name for v in declared.inputs],
        list(output_names(spec, expected.model)),
        body,
        [helper.make_opsetid("", expected.cell.opset)],
        [a.name for a in versions.attributes_at(spec, expected.model.domain_version)],
    )
    made.functions.append(function)
    try:
        onnx.checker.check_model(made, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"{expected}: onnx.checker refuses it with a function body: {one_line(error)}") from error
    return made
