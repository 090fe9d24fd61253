"""Rows in another order: a rule that only the kernel can check in one pass."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp, ValueRule

SPEC = OpSpec(
    name="permute_rows",
    summary="Put the rows of a matrix in another order.",
    torch=TorchOp(name="tied::permute_rows"),
    onnx=OnnxOp(domain="tied.PermuteRows", op_type="PermuteRows"),
    inputs=(
        Input(name="x", type="float32", dims=("N", "C"), doc="the matrix"),
        Input(
            name="order", type="int32", dims=("N",), doc="a permutation of the rows",
            values=ValueRule(index_into="N", unique=True, checked_by="kernel"),
        ),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x"), doc="the rows"),),
    tolerances={"custom": {"float32": Tolerance(rtol=0.0, atol=0.0)}},
)  # fmt: skip
