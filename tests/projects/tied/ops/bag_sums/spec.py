"""Sums over bags of rows, as torch's EmbeddingBag has them: required, optional and variadic inputs with rules."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp, ValueRule

SPEC = OpSpec(
    name="bag_sums",
    summary="Sum the rows of each bag: from its offset to the next one.",
    torch=TorchOp(name="tied::bag_sums"),
    onnx=OnnxOp(domain="tied.BagSums", op_type="BagSums"),
    inputs=(
        Input(name="x", type="float64", dims=("N", "C"), values=ValueRule(finite=True, non_empty=True), doc="rows"),
        Input(
            name="offsets", type="int32", dims=("S",), doc="the first row of each bag",
            values=ValueRule(minimum=0, maximum="N", sorted="ascending"),
        ),
        Input(
            name="weight", type="float64", dims=("N",), optional=True, doc="of each row",
            values=ValueRule(minimum=0.0, maximum="limit"),
        ),
        Input(
            name="codes", type="uint8", dims=("S",), variadic=True, doc="numbers that are added to each bag",
            values=ValueRule(allowed=(0, 1, 4)),
        ),
    ),
    attributes=(
        Attribute(name="limit", kind="float", default=1.0, minimum=0.0, doc="of the weights", no_effect="only a limit"),
    ),
    outputs=(Output(name="y", type="float64", shape=Dims(dims=("S", "C")), doc="the sums"),),
    tolerances={"custom": {"float64": Tolerance(rtol=1e-12, atol=1e-12)}},
)  # fmt: skip
