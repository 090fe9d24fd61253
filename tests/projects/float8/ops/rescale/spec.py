"""What the four float8 meet: storage in and out, a fixed dtype beside a variable one, value rules, and saturation."""

from opmatrix.spec import Dims, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp, ValueRule

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="rescale",
    summary="Divide each row by its scale, store it as it came and, saturated, as float8_e4m3fn.",
    torch=TorchOp(name="float8::rescale"),
    onnx=OnnxOp(domain="float8", op_type="Rescale"),
    types={"T": ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float32")},
    inputs=(
        Input(name="x", type="T", dims=("N", "K")),
        Input(name="scale", type="T", dims=("N",), values=ValueRule(minimum=0.125, finite=True)),
    ),
    outputs=(
        Output(name="y", type="T", shape=SameAs(input="x")),
        Output(name="stored", type="float8_e4m3fn", shape=SameAs(input="x")),
        Output(name="greatest", type="float32", shape=Dims(dims=("N",))),
    ),
    tolerances={
        "custom": dict.fromkeys(
            ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float32"), EXACT
        )
    },
)
