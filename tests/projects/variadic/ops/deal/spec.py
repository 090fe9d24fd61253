"""As many outputs as an attribute says, of strings, of four bits or of numbers, with how long the strings are."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

EXACT = Tolerance(rtol=0.0, atol=0.0)
SPEC = OpSpec(
    name="deal",
    summary="Deal out a pile of cards, one after the other, and give the pile turned over.",
    torch=None,
    onnx=OnnxOp(domain="variadic.Deal", op_type="Deal"),
    types={"T": ("string", "uint4", "int64")},
    inputs=(Input(name="pile", type="T", dims=("N",)),),
    attributes=(Attribute(name="players", kind="int", minimum=1),),
    outputs=(
        Output(name="turned", type="T", shape=SameAs(input="pile")),
        Output(name="hands", type="T", shape=Dims(dims=("N // players",)), variadic="players"),
    ),
    tolerances={"custom": {"string": EXACT, "uint4": EXACT, "int64": EXACT}},
)
