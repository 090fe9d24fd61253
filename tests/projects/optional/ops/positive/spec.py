"""The positive elements, their places, and a mask of them; a node may leave out each but the first."""

from opmatrix.spec import Attribute, FromKernel, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="positive",
    summary="Keep the positive elements, in place, and tell where they are.",
    torch=TorchOp(name="optional_ops::positive"),
    onnx=OnnxOp(domain="optional.ops", op_type="Positive"),
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T", dims=("...", "C")),),
    attributes=(Attribute(name="return_mask", kind="bool", default=False, torch_name="masked"),),
    outputs=(
        Output(name="y", type="T", shape=SameAs(input="x"), doc="x, 0 where it is not positive"),
        Output(name="places", type="int64", shape=FromKernel(rank=1), optional=True, doc="flat indices"),
        Output(name="mask", type="bool", shape=SameAs(input="x"), optional="return_mask", doc="where x is positive"),
        Output(name="rest", type="T", shape=SameAs(input="x"), optional=True, doc="what is left of x"),
    ),
    tolerances={"custom": {dtype: Tolerance(rtol=0.0, atol=0.0) for dtype in ("float32", "float64", "int64", "bool")}},
)
