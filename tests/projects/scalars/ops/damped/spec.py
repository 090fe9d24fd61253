"""The numbers of torch's schema are of type Scalar: one with a default, one that may be None."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="damped",
    summary="Multiply x by a factor, and add an offset if there is one.",
    torch=TorchOp(
        name="sca::damped", schema="sca::damped(Tensor x, Scalar factor=1, *, Scalar? offset=None) -> Tensor"
    ),
    onnx=OnnxOp(domain="sca.domain", op_type="Damped"),
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T"),),
    attributes=(
        Attribute(name="factor", kind="float", default=1.0),
        Attribute(name="offset", kind="float", optional=True),
    ),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-6, atol=1e-6),
            "float64": Tolerance(rtol=1e-14, atol=1e-14),
        }
    },
)
