"""An argument that is written, and a seed of 32 bits that may be absent: the elements then stay as they are."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="jitter",
    summary="Add a random number from -amount to amount to each element.",
    torch=TorchOp(
        name="sown::jitter_",
        schema="sown::jitter_(Tensor(a!) self, float amount=1, *, Generator? generator=None) -> Tensor(a!)",
    ),
    onnx=OnnxOp(domain="sown.domain", op_type="Jitter"),
    inputs=(Input(name="x", type="float64", torch_name="self"),),
    attributes=(
        Attribute(name="amount", kind="float", default=1.0),
        Attribute(name="seed", kind="int", optional=True, minimum=0, maximum=2**32 - 1, torch_name="generator"),
    ),
    outputs=(Output(name="y", type="float64", shape=SameAs(input="x"), writes="x"),),
    tolerances={"custom": {"float64": Tolerance(rtol=1e-14, atol=1e-14)}},
)
