"""Pixels to channels, as torch's pixel_unshuffle: an attribute divides sizes, another one is a size, and a size is
computed from one that only an optional input has."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

SPEC = OpSpec(
    name="unshuffle",
    summary="Move the pixels of each block of r by r to channels of their own, times factors, plus numbers.",
    torch=TorchOp(name="computed::unshuffle"),
    onnx=OnnxOp(domain="test.computed", op_type="Unshuffle"),
    inputs=(
        Input(name="x", type="int64", dims=("N", "C", "r*H", "r*W"), doc="the images"),
        Input(name="factors", type="int64", dims=("count",), doc="their sum is a factor"),
        Input(name="values", type="int64", dims=("Q",), optional=True, doc="their sum is added"),
        Input(name="edges", type="int64", dims=("2*Q + 1",), optional=True, doc="of values: that in the middle counts"),
    ),
    attributes=(
        Attribute(name="r", kind="int", minimum=1, maximum=5, doc="the size of a block"),
        Attribute(name="count", kind="int", minimum=1, maximum=9, doc="how many factors", no_effect="only a size"),
    ),
    outputs=(Output(name="y", type="int64", shape=Dims(dims=("N", "C*r*r", "H", "W"))),),
    tolerances={"custom": {"int64": Tolerance(rtol=0.0, atol=0.0)}},
)
