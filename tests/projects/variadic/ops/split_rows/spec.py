"""As many outputs as an attribute says, behind another output."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

EXACT = Tolerance(rtol=0.0, atol=0.0)
SPEC = OpSpec(
    name="split_rows",
    summary="Split the columns into equal parts, and count the columns that remain.",
    torch=TorchOp(name="variadic::split_rows"),
    onnx=OnnxOp(domain="variadic.SplitRows", op_type="SplitRows"),
    types={"T": ("float32", "int64")},
    inputs=(Input(name="x", type="T", dims=("N", "C")),),
    attributes=(Attribute(name="count", kind="int", minimum=1),),
    outputs=(
        Output(name="left", type="int64", shape=Dims(dims=()), doc="how many columns are in no part"),
        Output(name="blocks", type="T", shape=Dims(dims=("N", "C // count")), variadic="count", doc="the parts"),
    ),
    tolerances={"custom": {"float32": EXACT, "int64": EXACT}},
)
