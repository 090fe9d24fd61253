"""A threshold and a factor that no case has: faults that hide in attributes, ties and sizes."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="gate",
    summary="What is above a threshold, times a number, else a weight.",
    torch=TorchOp(name="searched::gate", python=True),
    onnx=OnnxOp(domain="searched", op_type="Gate"),
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T", dims=("N", "M")), Input(name="w", type="T", dims=("M",))),
    attributes=(
        Attribute(name="threshold", kind="float", default=0.5, minimum=0.0, maximum=1.0),
        Attribute(name="times", kind="int", default=1, minimum=1, maximum=100),
    ),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": EXACT, "float64": EXACT}},
    kernel="",  # the search calls the one in Python
)
