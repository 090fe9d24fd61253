"""An operator that declares `batch`: what it computes of several indices is a fault."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="centred",
    summary="w * x, or in addition minus the mean of each column.",
    torch=TorchOp(name="searched::centred", batch="N", python=True),
    onnx=OnnxOp(domain="searched", op_type="Centred"),
    inputs=(Input(name="x", type="float32", dims=("N", "C")), Input(name="w", type="float32", dims=("C",))),
    attributes=(Attribute(name="with_sum", kind="bool", default=True),),
    outputs=(
        Output(name="y", type="float32", shape=SameAs(input="x")),
        Output(name="total", type="float32", shape=SameAs(input="x", replace={1: None}), optional="with_sum"),
    ),
    tolerances={"custom": {"float32": Tolerance(rtol=1e-5, atol=1e-5)}},
    kernel="",  # the search calls the one in Python
)
