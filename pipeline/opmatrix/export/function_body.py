"""A custom node with a body of standard nodes, as a function in the model: a runtime without the kernel runs it too.

Format: FunctionProto, https://github.com/onnx/onnx/blob/main/docs/IR.md#functions
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import ModelProto, NodeProto, helper

from opmatrix.declaration import schema_versions
from opmatrix.errors import ExportError, one_line
from opmatrix.export.expected_model import ExpectedModel

MIN_IR_VERSION = 8  # the first that has functions


def with_function(proto: ModelProto, demand: ExpectedModel, body: Sequence[NodeProto]) -> ModelProto:
    """Return `proto` with `body`, which has the names of the graph's inputs and outputs, behind the declared node.

    The values of attributes stand in the body: it is that of this model, and of no other. Raises ExportError where
    onnx's checker refuses the model.
    """
    made = ModelProto()
    made.CopyFrom(proto)
    made.ir_version = max(made.ir_version, MIN_IR_VERSION)
    spec, declared = demand.spec, demand.signature
    function = helper.make_function(
        spec.onnx.domain,
        spec.onnx.op_type,
        [v.name for v in declared.inputs],
        [v.name for v in declared.outputs],
        body,
        [helper.make_opsetid("", demand.cell.opset)],
        [a.name for a in schema_versions.attributes_at(spec, demand.model.domain_version)],
    )
    made.functions.append(function)
    try:
        onnx.checker.check_model(made, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"{demand}: onnx.checker refuses it with a function body: {one_line(error)}") from error
    return made
