"""Gaussian error linear unit: torch's own operator, exported as ONNX Runtime's com.microsoft::Gelu."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, Override, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="gelu",
    summary="Weigh each element by the normal distribution function at it.",
    torch=TorchOp(name="aten::gelu", overrides=(Override(name="aten::gelu"),)),
    onnx=OnnxOp(domain="com.microsoft", op_type="Gelu"),
    runtime="contrib",
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T", doc="any shape"),),
    attributes=(
        Attribute(
            name="approximate",
            kind="string",
            default="none",
            allowed=("none", "tanh"),
            torch_only=True,
            doc="the formula: the exact one, or one that goes by tanh",
        ),
    ),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x"), doc="x, weighed"),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-6, atol=2e-6),
            "float64": Tolerance(rtol=1e-12, atol=1e-14),
        },
    },
)
