"""A factor that jumps: a formula that rounds in another order may be on the other side of a jump.

The attribute's other values, such as 1, put `at` on the jumps of ceil.
"""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="stairs",
    summary="Multiply each column by a factor that is rounded up.",
    torch=TorchOp(name="gradients::stairs", python=True),
    onnx=OnnxOp(domain="gradients", op_type="Stairs"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("N", "C")),
        Input(name="at", type="T", dims=("C",)),
    ),
    attributes=(Attribute(name="edge", kind="float", default=0.3),),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
        },
    },
    kernel="",  # no step that reads the formula needs one
)
