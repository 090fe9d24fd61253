"""Lists of strings in torch: one that is required, and one that may be None."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="tag_count",
    summary="Add the lengths and the counts of its lists of strings to each element.",
    torch=TorchOp(name="listed::tag_count"),
    onnx=OnnxOp(domain="test.listed", op_type="TagCount"),
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T", dims=("...",)),),
    attributes=(
        Attribute(name="tags", kind="strings"),
        Attribute(name="more", kind="strings", optional=True),
        Attribute(name="factor", kind="float", default=1.0, minimum=0.5, maximum=2.0),
    ),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={
        "custom": {"float32": Tolerance(rtol=1e-6, atol=1e-6), "float64": Tolerance(rtol=1e-12, atol=1e-12)},
    },
)
