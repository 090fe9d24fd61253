"""int4 and uint4 in a type variable with int8: in required, optional and variadic inputs, and in outputs."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="add_saturated",
    summary="Add integers, saturated and modulo their range, and give the inverted low four bits of the first ones.",
    torch=None,
    onnx=OnnxOp(domain="four_bits.test", op_type="AddSaturated"),
    types={"T": ("int4", "uint4", "int8")},
    inputs=(
        Input(name="x", type="T"),
        Input(name="y", type="T", same_as="x", optional=True),
        Input(name="others", type="T", same_as="x", variadic=True),
    ),
    outputs=(
        Output(name="sum", type="T", shape=SameAs(input="x")),
        Output(name="wrapped", type="T", shape=SameAs(input="x"), optional=True),
        Output(name="codes", type="uint4", shape=SameAs(input="x")),
    ),
    tolerances={"custom": {"int4": EXACT, "uint4": EXACT, "int8": EXACT}},
)
