"""A list of strings with a default, in ONNX alone, beside strings as data."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

SPEC = OpSpec(
    name="label_ids",
    summary="Find strings in a list, and count the bytes of those in another one.",
    torch=None,
    onnx=OnnxOp(domain="test.listed", op_type="LabelIds"),
    inputs=(Input(name="texts", type="string", dims=("...",)),),
    attributes=(
        Attribute(name="labels", kind="strings", onnx_name="classes_strings"),
        Attribute(name="counted", kind="strings", default=("b", "ä")),
    ),
    outputs=(
        Output(name="ids", type="int64", shape=SameAs(input="texts")),
        Output(name="sizes", type="int64", shape=SameAs(input="texts")),
    ),
    tolerances={"custom": {"int64": Tolerance(rtol=0.0, atol=0.0)}},
)
