"""A small operator whose cases tell every wrong kernel from the right one."""

from opmatrix import spec
from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

SPEC = OpSpec(
    name="shifted",
    summary="x * factor where the mask is true, plus a bias.",
    torch=TorchOp(name="hollow::shifted"),
    onnx=OnnxOp(domain="hollow.domain", op_type="Shifted"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("N",)),
        Input(name="mask", type="bool", dims=("N",)),
        Input(name="bias", type="T", dims=("N",), optional=True),
    ),
    attributes=(Attribute(name="factor", kind="float", default=2.0),),
    outputs=(Output(name="y", type="T", shape=spec.SameAs(input="x")),),
    tolerances={
        "custom": {"float32": Tolerance(rtol=1e-6, atol=1e-6), "float64": Tolerance(rtol=1e-12, atol=1e-12)},
    },
)
