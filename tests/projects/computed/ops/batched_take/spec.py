"""Elements of each row by index, with any number of axes before: the axes of x, index and weight are the same."""

from opmatrix.spec import Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp, ValueRule

SPEC = OpSpec(
    name="batched_take",
    summary="Take elements of each row by the indices of its row, times weights.",
    torch=TorchOp(name="computed::batched_take"),
    onnx=OnnxOp(domain="test.computed", op_type="BatchedTake"),
    inputs=(
        Input(name="x", type="float32", dims=("...", "N"), doc="the rows"),
        Input(
            name="index", type="int64", dims=("...", "M"), further_as="x", values=ValueRule(index_into="N"),
            doc="which elements, of each row",
        ),
        Input(name="weight", type="float32", dims=("M", "..."), further_as="x", optional=True, doc="their factors"),
    ),
    outputs=(Output(name="y", type="float32", shape=Dims(dims=("...", "M"))),),
    tolerances={"custom": {"float32": Tolerance(rtol=0.0, atol=0.0)}},
)  # fmt: skip
