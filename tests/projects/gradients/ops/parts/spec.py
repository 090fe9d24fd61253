"""Two outputs, of which the formula gives only one a gradient."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="parts",
    summary="Square a tensor, and triple it.",
    torch=TorchOp(name="gradients::parts", python=True),
    onnx=OnnxOp(domain="gradients", op_type="Parts"),
    inputs=(Input(name="x", type="float64"),),
    outputs=(
        Output(name="y", type="float64", shape=SameAs(input="x")),
        Output(name="z", type="float64", shape=SameAs(input="x")),
    ),
    tolerances={"custom": {"float64": Tolerance(rtol=1e-14, atol=0.0)}},
    kernel="",  # no step that reads the formula needs one
)
