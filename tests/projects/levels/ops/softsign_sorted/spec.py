"""An operator whose kernel is compiled for each level of x86-64, and uses functions of the standard library that a
linker would merge."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="softsign_sorted",
    summary="Sort, then divide each element by one plus its size.",
    torch=TorchOp(name="levels::softsign_sorted"),
    onnx=OnnxOp(domain="levels.domain", op_type="SoftsignSorted"),
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T", dims=("N",)),),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={
        "custom": {"float32": Tolerance(rtol=1e-6, atol=1e-7), "float64": Tolerance(rtol=1e-14, atol=1e-15)},
    },
    cpu_levels=True,
)
