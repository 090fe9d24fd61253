"""Rows of strings as a matrix: StringRaggedTensorToDense of onnxruntime-extensions, with its domain and its node."""

from opmatrix.spec import FromKernel, Input, OnnxOp, OpSpec, Output, Tolerance, ValueRule

SPEC = OpSpec(
    name="string_ragged_tensor_to_dense",
    summary="Write rows of strings of several lengths, which lie one behind the other, as rows of a matrix.",
    torch=None,
    onnx=OnnxOp(domain="ai.onnx.contrib", op_type="StringRaggedTensorToDense"),
    inputs=(
        Input(name="unused", type="int64", no_effect="the original does not read it", doc="not read"),
        Input(name="values", type="string", dims=("V",), doc="the strings of all rows"),
        Input(
            name="indices", type="int64", dims=("N + 1",),
            values=ValueRule(minimum=0, maximum="V", sorted="ascending"),
            doc="where in `values` each row begins, and where the last one ends",
        ),
        Input(
            name="default_value", type="string", same_as="indices",
            no_effect="the original reads only how many there are", doc="its number is that of the indices",
        ),
    ),
    outputs=(
        Output(
            name="dense", type="string", shape=FromKernel(dims=("N", "M")),
            doc="the matrix; behind the end of a shorter row are empty strings",
        ),
    ),
    tolerances={"custom": {"string": Tolerance(rtol=0.0, atol=0.0)}},
)  # fmt: skip
