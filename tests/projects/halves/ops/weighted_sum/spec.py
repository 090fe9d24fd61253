"""What float16 and bfloat16 meet: sums, limits, value rules, a fixed dtype beside a variable one, and a gradient."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp, ValueRule

SPEC = OpSpec(
    name="weighted_sum",
    summary="Sum each row with weights, find its greatest value, and store it as bfloat16.",
    torch=TorchOp(name="halves::weighted_sum"),
    onnx=OnnxOp(domain="halves", op_type="WeightedSum"),
    types={"T": ("float16", "bfloat16", "float32")},
    inputs=(
        Input(name="x", type="T", dims=("N", "K")),
        Input(name="weights", type="T", dims=("K",), values=ValueRule(minimum=0.0, finite=True)),
    ),
    attributes=(Attribute(name="scale", kind="float", default=1.0),),
    outputs=(
        Output(name="total", type="T", shape=Dims(dims=("N",))),
        Output(name="greatest", type="T", shape=Dims(dims=("N",))),
        Output(name="stored", type="bfloat16", shape=SameAs(input="x"), no_effect="a bfloat16 is stored as it is"),
    ),
    tolerances={
        "custom": {
            "float16": Tolerance(rtol=2.0**-11, atol=2.0**-24),
            "bfloat16": Tolerance(rtol=2.0**-8, atol=0.0),
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
        },
    },
)
