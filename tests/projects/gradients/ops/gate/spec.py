"""A column is squared or 0: whether `at` is at the edge, a rounding decides."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="gate",
    summary="Square the columns that are not beyond the edge.",
    torch=TorchOp(name="gradients::gate", python=True),
    onnx=OnnxOp(domain="gradients", op_type="Gate"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("N", "C")),
        Input(name="at", type="T", dims=("C",)),
    ),
    attributes=(Attribute(name="edge", kind="float", default=0.3),),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
        },
    },
    kernel="",  # no step that reads the formula needs one
)
