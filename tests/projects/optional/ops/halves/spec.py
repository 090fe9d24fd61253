"""Halves of integers, and what is left; of ONNX alone."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

SPEC = OpSpec(
    name="halves",
    summary="Divide by two, rounded down, and tell the rest.",
    torch=None,
    onnx=OnnxOp(domain="optional.ops", op_type="Halves"),
    inputs=(Input(name="x", type="int64", dims=("N",)),),
    outputs=(
        Output(name="rest", type="int64", shape=SameAs(input="x"), optional=True),
        Output(name="half", type="int64", shape=SameAs(input="x")),
    ),
    tolerances={"custom": {"int64": Tolerance(rtol=0.0, atol=0.0)}},
)
