"""The same numbers: faults that hide in one kind of input."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="each",
    summary="The same numbers.",
    torch=TorchOp(name="searched::each", python=True),
    onnx=OnnxOp(domain="searched", op_type="Each"),
    types={"T": ("float32", "int64")},
    inputs=(Input(name="x", type="T"), Input(name="w", type="T", dims=("N",))),
    outputs=(
        Output(name="y", type="T", shape=SameAs(input="x")),
        Output(name="z", type="T", shape=SameAs(input="w")),
    ),
    tolerances={"custom": {"float32": EXACT, "int64": EXACT}},
    kernel="",  # the search calls the one in Python
)
