"""Soft capping of scaled values, whose gradient is an operator with a kernel of its own."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="soft_cap",
    summary="Scale each channel, and bend values smoothly so that none is beyond the cap.",
    torch=TorchOp(name="backward::soft_cap", backward="soft_cap_backward"),
    onnx=OnnxOp(domain="backward.SoftCap", op_type="SoftCap"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("N", "C"), doc="the values"),
        Input(name="scale", type="T", dims=("C",), doc="one factor per channel"),
        Input(name="shift", type="T", dims=("C",), optional=True, doc="one summand per channel"),
    ),
    attributes=(
        Attribute(name="cap", kind="float", default=2.0, torch_name="limit", minimum=0.5, doc="the largest size"),
    ),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x"), doc="cap * tanh((scale * x + shift) / cap)"),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-6),
            "float64": Tolerance(rtol=1e-12, atol=1e-13),
        },
    },
)
