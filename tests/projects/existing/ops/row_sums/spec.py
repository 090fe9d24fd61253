"""A binding for ONNX Runtime by hand, over a header that lies in the project; torch's is generated."""

from opmatrix.spec import Dims, Headers, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

SPEC = OpSpec(
    name="row_sums",
    summary="The sum of each row.",
    torch=TorchOp(name="rows::sums"),
    onnx=OnnxOp(domain="rows.domain", op_type="RowSums"),
    inputs=(Input(name="x", type="float64", dims=("N", "M")),),
    outputs=(Output(name="y", type="float64", shape=Dims(dims=("N",))),),
    tolerances={"custom": {"float64": Tolerance(rtol=1e-12, atol=1e-12)}},
    headers=(Headers(folder="third_party"),),
)
