"""A slope below zero, whose nodes of ONNX refuse one value of an attribute."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="leaky",
    summary="Scale what is below zero.",
    torch=TorchOp(name="differ::leaky"),
    onnx=OnnxOp(domain="leaky.domain", op_type="Leaky", versions=(1, 2)),
    inputs=(Input(name="x", type="float32", dims=("...",)),),
    attributes=(
        Attribute(name="slope", kind="float", default=0.25),
        Attribute(name="mode", kind="string", default="plain", allowed=("plain", "odd"), since=2),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    lowerings=("custom", "decomposed"),
    tolerances={one: {"float32": Tolerance(rtol=1e-6, atol=0.0)} for one in ("custom", "decomposed")},
)
