"""Add a tensor to itself and round, as in the seeds: defined in Python, lowered to two custom ops and a Cast."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="add_and_round",
    summary="Add a tensor to itself, and round half to even.",
    torch=TorchOp(name="mylibrary::addandround_op", python=True),
    onnx=OnnxOp(domain="test.customop", op_type="AddAndRound"),
    uses=("custom_op_one", "custom_op_two"),
    types={"T": ("float32", "float64", "int64")},
    inputs=(Input(name="x", type="T", doc="any shape"),),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x"), doc="x + x, rounded"),),
    tolerances={"custom": {"float32": EXACT, "float64": EXACT, "int64": EXACT}},
)
