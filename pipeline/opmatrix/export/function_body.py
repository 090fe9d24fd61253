"""Add a function with standard nodes to a model with a custom node, so that a runtime without the kernel can run it.

Format: FunctionProto, https://github.com/onnx/onnx/blob/main/docs/IR.md#functions
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import ModelProto, NodeProto, helper

from opmatrix.declaration import schema_versions
from opmatrix.declaration.model_inputs import output_names
from opmatrix.errors import ExportError, one_line
from opmatrix.export.expected_model import ExpectedModel

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
        [a.name for a in schema_versions.attributes_at(spec, expected.model.domain_version)],
    )
    made.functions.append(function)
    try:
        onnx.checker.check_model(made, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"{expected}: onnx.checker refuses it with a function body: {one_line(error)}") from error
    return made
