"""Strings in a required, an optional and a variadic input, and in an output of a declared shape."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

SPEC = OpSpec(
    name="join_texts",
    summary="Join strings at the same place, with a separator.",
    torch=None,
    onnx=OnnxOp(domain="strings.test", op_type="JoinTexts"),
    inputs=(
        Input(name="first", type="string"),
        Input(name="prefix", type="string", dims=(), optional=True),
        Input(name="others", type="string", same_as="first", variadic=True),
    ),
    attributes=(Attribute(name="separator", kind="string", default="-"),),
    outputs=(Output(name="joined", type="string", shape=SameAs(input="first")),),
    tolerances={"custom": {"string": Tolerance(rtol=0.0, atol=0.0)}},
)
