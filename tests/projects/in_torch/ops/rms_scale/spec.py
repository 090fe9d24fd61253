"""Root-mean-square normalization, whose reference is written in torch."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="rms_scale",
    summary="Divide each row by its root mean square, and multiply it by a weight.",
    torch=TorchOp(name="in_torch::rms_scale"),
    onnx=OnnxOp(domain="in_torch.RmsScale", op_type="RmsScale"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("N", "C"), doc="the rows"),
        Input(name="weight", type="T", dims=("C",), optional=True, doc="one factor per column"),
    ),
    attributes=(Attribute(name="eps", kind="float", default=1e-5, minimum=0.0, doc="added to the mean square"),),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x"), doc="the scaled rows"),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-6, atol=1e-6),
            "float64": Tolerance(rtol=1e-13, atol=1e-13),
        },
    },
    reference="torch",
)
