"""Two differences, of an operator that only ONNX has."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

SPEC = OpSpec(
    name="differ",
    summary="Two differences.",
    torch=None,
    onnx=OnnxOp(domain="differ.domain", op_type="Differ"),
    types={"T": ("float32",)},
    inputs=(Input(name="x", type="T", dims=("N", "C")), Input(name="y", type="T", dims=("N", "C"))),
    outputs=(
        Output(name="first", type="T", shape=SameAs(input="x")),
        Output(name="second", type="T", shape=SameAs(input="x")),
    ),
    tolerances={"custom": {"float32": Tolerance(rtol=1e-6, atol=1e-6)}},
)
