"""Rows by index: an input whose values are tied to a size of another one."""

from opmatrix.spec import Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp, ValueRule

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="gather_rows",
    summary="Copy rows of a matrix, in the order of an index.",
    torch=TorchOp(name="tied::gather_rows"),
    onnx=OnnxOp(domain="tied.GatherRows", op_type="GatherRows"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("N", "C"), doc="the matrix"),
        Input(name="index", type="int64", dims=("M",), values=ValueRule(index_into="N"), doc="of the rows to copy"),
    ),
    outputs=(Output(name="y", type="T", shape=Dims(dims=("M", "C")), doc="the rows"),),
    tolerances={"custom": {"float32": EXACT, "float64": EXACT}},
)
