"""Integers, of which the Scalar is one too, an overload, and an argument that is written."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="shift",
    summary="Add a multiple of a number.",
    torch=TorchOp(
        name="sca::shift_",
        schema="sca::shift_.Scalar(Tensor(a!) self, Scalar other, *, Scalar alpha=1) -> Tensor(a!)",
    ),
    onnx=OnnxOp(domain="sca.domain", op_type="Shift"),
    inputs=(Input(name="x", type="int64", torch_name="self"),),
    attributes=(
        Attribute(name="other", kind="int"),
        Attribute(name="alpha", kind="int", default=1),
    ),
    outputs=(Output(name="y", type="int64", shape=SameAs(input="x"), writes="x"),),
    tolerances={"custom": {"int64": Tolerance(rtol=0.0, atol=0.0)}},
)
