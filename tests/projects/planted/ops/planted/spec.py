"""2 * x + w: a kernel with a place for each kind of mutant that tests/addons/mutate/test_run_mutants.py plants."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="planted",
    summary="Compute 2 * x + w.",
    torch=TorchOp(name="planted::planted"),
    onnx=OnnxOp(domain="test.planted", op_type="Planted"),
    inputs=(
        Input(name="x", type="float32", dims=("N",)),
        Input(name="w", type="float32", dims=("N",)),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=1e-6, atol=1e-6)}},
)
