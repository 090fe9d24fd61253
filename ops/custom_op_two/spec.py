"""Rounding to whole numbers, as in the tutorial: test.customop::CustomOpTwo, known to ONNX alone."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

SPEC = OpSpec(
    name="custom_op_two",
    summary="Round each number to the nearest whole one, halves to the even one.",
    torch=None,
    onnx=OnnxOp(domain="test.customop", op_type="CustomOpTwo"),
    types={"T": ("float32", "float64", "int64")},
    inputs=(Input(name="x", type="T", doc="a tensor of any shape"),),
    outputs=(
        Output(
            name="y",
            type="T",
            shape=SameAs(input="x"),
            doc="x, rounded",
            no_effect="an int64 is a whole number already",
        ),
    ),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=0.0, atol=0.0),
            "float64": Tolerance(rtol=0.0, atol=0.0),
            "int64": Tolerance(rtol=0.0, atol=0.0),
        },
    },
)
