"""A type variable of strings and numbers: one kernel for both."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="fill_empty",
    summary="Replace empty strings, and zeros, by another value.",
    torch=None,
    onnx=OnnxOp(domain="strings.test", op_type="FillEmpty"),
    types={"T": ("int64", "string")},
    inputs=(Input(name="x", type="T", dims=("...",)), Input(name="other", type="T", dims=(1,))),
    outputs=(
        Output(name="y", type="T", shape=SameAs(input="x")),
        Output(name="replaced", type="bool", shape=SameAs(input="x")),
        Output(name="others", type="T", shape=SameAs(input="x"), optional=True),
    ),
    tolerances={"custom": {"int64": EXACT, "string": EXACT, "bool": EXACT}},
)
