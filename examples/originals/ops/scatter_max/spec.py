"""The largest number that an index sends to each place: scatter_max of torch_scatter, with its schema and node."""

from opmatrix.spec import Attribute, FromKernel, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp, ValueRule

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8")
EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="scatter_max",
    summary="Scatter the values of a tensor along an axis; keep the largest at each index, and its position.",
    torch=TorchOp(
        name="torch_scatter::scatter_max",
        schema="torch_scatter::scatter_max(Tensor src, Tensor index, int dim, Tensor? out, int? dim_size) "
        "-> (Tensor, Tensor)",
    ),
    onnx=OnnxOp(domain="torch_scatter", op_type="scatter_max"),
    types={"T": DTYPES},
    inputs=(
        Input(name="src", type="T", dims=("...",), doc="the values, of any shape with at least one axis"),
        Input(
            name="index", type="int64", values=ValueRule(minimum=0),
            doc="the place of each number along `dim`; broadcasts to the shape of src",
        ),
        Input(name="out", type="T", optional=True, doc="the initial values, which only larger ones replace"),
    ),
    attributes=(
        Attribute(name="dim", kind="int", default=-1, doc="the axis of src along which numbers are moved"),
        Attribute(
            name="dim_size", kind="int", optional=True, minimum=-1,
            doc="the size of axis `dim` of y without `out`; absent or -1: the largest index plus 1",
        ),
    ),
    outputs=(
        Output(name="y", type="T", shape=FromKernel(input="src", replace={"dim": "S"}), doc="the largest numbers"),
        Output(
            name="arg_out", type="int64", shape=FromKernel(input="src", replace={"dim": "S"}),
            doc="where along `dim` each was in src; the size of that axis where none was larger",
        ),
    ),
    discontinuous="a place that has the lowest number of its dtype becomes 0",
    tolerances={"custom": dict.fromkeys(DTYPES, EXACT)},
)  # fmt: skip
