"""Sums of squares along an axis, and an optional bias: a gradient of each dtype, with and without the bias."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="mix",
    summary="Add up squares along an axis.",
    torch=TorchOp(name="gradients::mix", python=True),
    onnx=OnnxOp(domain="gradients", op_type="Mix"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("N", "C")),
        Input(name="bias", type="T", dims=("C",), optional=True),
    ),
    attributes=(Attribute(name="dim", kind="int", default=1, minimum=-2, maximum=1),),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
        },
    },
    kernel="",  # no step that reads the formula needs one
)
