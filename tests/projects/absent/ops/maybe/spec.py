"""An attribute of every kind that may be absent: each value, also 0, False, "" and an empty list, differs from none."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="maybe",
    summary="Change numbers by each attribute that is there.",
    torch=TorchOp(name="optional::maybe"),
    onnx=OnnxOp(domain="test.optional", op_type="Maybe", versions=(1, 2)),
    inputs=(Input(name="x", type="float32", dims=("...",)),),
    attributes=(
        Attribute(name="factor", kind="float", minimum=0.5, maximum=2.0),
        Attribute(name="shift", kind="float", optional=True, minimum=-4.0, maximum=4.0, torch_name="bias"),
        Attribute(name="times", kind="int", optional=True, minimum=0, maximum=5, onnx_name="for"),
        Attribute(name="negate", kind="bool", optional=True),
        Attribute(name="mode", kind="string", optional=True, allowed=("none", "double", "halve")),
        Attribute(name="weights", kind="floats", optional=True, minimum=-2.0, maximum=2.0),
        Attribute(name="steps", kind="ints", optional=True, minimum=-3, maximum=3),
        Attribute(name="more", kind="int", optional=True, since=2, minimum=-9, maximum=9),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=1e-5, atol=1e-5)}},
)
