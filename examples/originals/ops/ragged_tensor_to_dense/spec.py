"""Rows of several lengths as a matrix: RaggedTensorToDense of onnxruntime-extensions, with its domain and its node."""

from opmatrix.spec import Attribute, FromKernel, Input, OnnxOp, OpSpec, Output, Tolerance, ValueRule

SPEC = OpSpec(
    name="ragged_tensor_to_dense",
    summary="Write rows of several lengths, which lie one behind the other, as rows of a matrix.",
    torch=None,
    onnx=OnnxOp(domain="ai.onnx.contrib", op_type="RaggedTensorToDense"),
    inputs=(
        Input(name="unused", type="int64", no_effect="the original does not read it", doc="not read"),
        Input(name="values", type="int64", dims=("V",), doc="the elements of all rows"),
        Input(name="default_value", type="int64", dims=(1,), doc="the value behind the end of a shorter row"),
        Input(
            name="indices", type="int64", dims=("N + 1",),
            values=ValueRule(minimum=0, maximum="V", sorted="ascending"),
            doc="where in `values` each row begins, and where the last one ends",
        ),
    ),
    attributes=(
        Attribute(
            name="missing_value", kind="int", default=-1, no_effect="the original reads it and uses default_value",
            doc="not used",
        ),
    ),
    outputs=(Output(name="dense", type="int64", shape=FromKernel(dims=("N", "M")), doc="the matrix"),),
    tolerances={"custom": {"int64": Tolerance(rtol=0.0, atol=0.0)}},
)  # fmt: skip
