"""A seed with a default, which a call without a generator has. The outputs are the numbers themselves."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="numbers",
    summary="Return a random number for each element.",
    torch=TorchOp(
        name="sown::numbers",
        schema="sown::numbers.like(Tensor x, *, Generator? generator=None) -> Tensor",
    ),
    onnx=OnnxOp(domain="sown.domain", op_type="Numbers"),
    inputs=(Input(name="x", type="float32", no_effect="only its shape counts"),),
    attributes=(Attribute(name="seed", kind="int", default=42, minimum=0, torch_name="generator"),),
    outputs=(Output(name="y", type="int64", shape=SameAs(input="x")),),
    tolerances={"custom": {"int64": Tolerance(rtol=0.0, atol=0.0)}},
)
