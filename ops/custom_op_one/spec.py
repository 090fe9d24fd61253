"""The sum of two tensors, as in the tutorial: test.customop::CustomOpOne, known to ONNX alone."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

SPEC = OpSpec(
    name="custom_op_one",
    summary="Add two tensors of one shape.",
    torch=None,
    onnx=OnnxOp(domain="test.customop", op_type="CustomOpOne"),
    types={"T": ("float32", "float64", "int64")},
    inputs=(
        Input(name="x", type="T", doc="a tensor of any shape"),
        Input(name="y", type="T", same_as="x", doc="a tensor of the same shape"),
    ),
    outputs=(Output(name="z", type="T", shape=SameAs(input="x"), doc="x + y"),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=0.0, atol=0.0),
            "float64": Tolerance(rtol=0.0, atol=0.0),
            "int64": Tolerance(rtol=0.0, atol=0.0),
        },
    },
)
