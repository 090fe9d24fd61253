"""A sparse matrix in CSR format times a vector: row pointers that start at 0 and end at the number of elements."""

from opmatrix.spec import Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp, ValueRule

SPEC = OpSpec(
    name="csr_times",
    summary="Multiply a sparse matrix by a vector.",
    torch=TorchOp(name="tied::csr_times"),
    onnx=OnnxOp(domain="tied.CsrTimes", op_type="CsrTimes"),
    inputs=(
        Input(name="x", type="float64", dims=("C",), values=ValueRule(finite=True), doc="the vector"),
        Input(name="elements", type="float64", dims=("Z",), values=ValueRule(finite=True), doc="of the matrix"),
        Input(name="columns", type="int64", dims=("Z",), values=ValueRule(index_into="C"), doc="of the elements"),
        Input(
            name="offsets", type="int64", dims=("R + 1",), doc="of the rows in elements",
            values=ValueRule(minimum=0, maximum="Z", sorted="ascending", spans=True),
        ),
    ),
    outputs=(Output(name="y", type="float64", shape=Dims(dims=("R",)), doc="the product"),),
    tolerances={"custom": {"float64": Tolerance(rtol=1e-12, atol=1e-12)}},
)  # fmt: skip
