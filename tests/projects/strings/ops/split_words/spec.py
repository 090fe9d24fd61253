"""Strings whose number the kernel decides, of an input with a named rank and a rule."""

from opmatrix.spec import FromKernel, Input, OnnxOp, OpSpec, Output, Tolerance, ValueRule

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="split_words",
    summary="Split each string at spaces.",
    torch=None,
    onnx=OnnxOp(domain="strings.test", op_type="SplitWords"),
    inputs=(
        Input(name="text", type="string", dims=("...", "N"), rank="R", values=ValueRule(non_empty=True)),
        Input(name="axes", type="int64", dims=("R",), no_effect="only its length counts"),
    ),
    outputs=(
        Output(name="words", type="string", shape=FromKernel(dims=("W",))),
        Output(name="places", type="int64", shape=FromKernel(dims=("W", 2))),
        Output(name="rest", type="string", shape=FromKernel(rank=1), optional=True),
    ),
    tolerances={"custom": {"string": EXACT, "int64": EXACT}},
)
