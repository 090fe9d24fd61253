"""Rules of int4 and uint4, and outputs of them whose size the kernel decides."""

from opmatrix.spec import FromKernel, Input, OnnxOp, OpSpec, Output, Tolerance, ValueRule

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="pick_codes",
    summary="Take numbers by their index, without those that are 0.",
    torch=None,
    onnx=OnnxOp(domain="four_bits.test", op_type="PickCodes"),
    inputs=(
        Input(name="table", type="int4", dims=("N",), values=ValueRule(minimum=-7)),
        Input(name="index", type="uint4", dims=("K",), values=ValueRule(index_into="N")),
    ),
    outputs=(
        Output(name="picked", type="int4", shape=FromKernel(dims=("M",))),
        Output(name="taken", type="uint4", shape=FromKernel(dims=("M",))),
    ),
    tolerances={"custom": {"int4": EXACT, "uint4": EXACT}},
)
