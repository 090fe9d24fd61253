"""Rounding to a few steps: its gradient is no derivative."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="quant",
    summary="Round to the nearest of five numbers.",
    torch=TorchOp(name="gradients::quant", python=True),
    onnx=OnnxOp(domain="gradients", op_type="Quant"),
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T", dims=("N", "C")),),
    attributes=(Attribute(name="step", kind="float", default=0.5),),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
        },
    },
    kernel="",  # no step that reads the formula needs one
)
