"""Halve and add one, many times."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="passes",
    summary="Halve and add one, many times.",
    torch=TorchOp(name="bench_ops::passes"),
    onnx=OnnxOp(domain="bench_ops", op_type="Passes"),
    inputs=(Input(name="x", type="float32", dims=("N",)),),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    lowerings=("custom", "decomposed"),
    reference="torch",
    tolerances={
        "custom": {"float32": Tolerance(rtol=1e-6, atol=0.0)},
        "decomposed": {"float32": Tolerance(rtol=1e-6, atol=0.0)},
    },
)
