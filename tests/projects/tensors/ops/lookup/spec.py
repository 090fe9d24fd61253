"""A table that is an attribute of the node, and a mask of another dtype; it exists in ONNX alone."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

SPEC = OpSpec(
    name="lookup",
    summary="Multiply columns by the sums of the table's rows, and keep those that a mask has.",
    torch=None,
    onnx=OnnxOp(domain="test.tensors", op_type="Lookup"),
    inputs=(Input(name="x", type="float32", dims=("N", 3)),),
    attributes=(
        Attribute(name="table", kind="tensor", type="float32", dims=(3, None), onnx_name="template"),
        Attribute(name="kept", kind="tensor", type="bool", dims=(3,)),
        Attribute(name="offset", kind="tensor", type="int64", dims=()),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=1e-6, atol=1e-6)}},
)
