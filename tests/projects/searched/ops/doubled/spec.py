"""Twice the input, with vectors from elsewhere: of kernel, reference and vectors, one may be alone."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="doubled",
    summary="Twice the input.",
    torch=TorchOp(name="searched::doubled", python=True),
    onnx=OnnxOp(domain="searched", op_type="Doubled"),
    inputs=(Input(name="x", type="float32", dims=("N", "M")),),
    attributes=(Attribute(name="factor", kind="float", default=2.0),),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    lowerings=("custom", "decomposed"),
    tolerances={one: {"float32": Tolerance(rtol=1e-6, atol=0.0)} for one in ("custom", "decomposed")},
    kernel="",  # the one in Python is called
)
