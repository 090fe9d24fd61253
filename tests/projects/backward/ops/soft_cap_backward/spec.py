"""The gradient of soft_cap, an operator of its own: spec.py of soft_cap names it in `torch`."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="soft_cap_backward",
    summary="The gradients of soft_cap for its values, its factors and its summands.",
    torch=TorchOp(name="backward::soft_cap_backward"),
    onnx=OnnxOp(domain="backward.SoftCap", op_type="SoftCapBackward"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="grad_y", type="T", dims=("N", "C"), doc="the gradient of soft_cap's output"),
        Input(name="x", type="T", dims=("N", "C"), doc="soft_cap's values"),
        Input(name="scale", type="T", dims=("C",), doc="its factors"),
        Input(name="y", type="T", dims=("N", "C"), doc="its output, so that tanh is not computed again"),
    ),
    attributes=(Attribute(name="cap", kind="float", default=2.0, minimum=0.5, doc="soft_cap's attribute"),),
    outputs=(
        Output(name="grad_x", type="T", shape=SameAs(input="x"), doc="for the values"),
        Output(name="grad_scale", type="T", shape=SameAs(input="scale"), doc="for the factors"),
        Output(name="grad_shift", type="T", shape=SameAs(input="scale"), doc="for the summands, also without any"),
    ),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
        },
    },
)
