"""A torch binding by hand, with a schema of its own, over the kernel that ONNX Runtime's generated binding calls."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="damped",
    summary="x * factor where x is below zero, else x.",
    torch=TorchOp(name="brought::damped"),
    onnx=OnnxOp(domain="brought.domain", op_type="Damped"),
    inputs=(Input(name="x", type="float32", dims=("...",)),),
    attributes=(Attribute(name="factor", kind="float", default=0.5),),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=1e-6, atol=0.0)}},
)
