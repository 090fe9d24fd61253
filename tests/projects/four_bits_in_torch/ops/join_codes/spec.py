"""uint4 in the node in a variadic input, and an output of int4 whose size the kernel decides."""

from opmatrix.spec import FromKernel, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp, ValueRule

SPEC = OpSpec(
    name="join_codes",
    summary="Take the numbers at the indices of all lists, without those that are 0.",
    torch=TorchOp(name="four_bits::join_codes"),
    onnx=OnnxOp(domain="four_bits.torch", op_type="JoinCodes"),
    min_opset=21,
    inputs=(
        Input(name="table", type="int8", onnx_type="int4", dims=(16,), values=ValueRule(minimum=-7, maximum=7)),
        Input(name="indices", type="uint8", onnx_type="uint4", variadic=True, values=ValueRule(index_into=16)),
    ),
    outputs=(Output(name="picked", type="int8", onnx_type="int4", shape=FromKernel(dims=("M",))),),
    tolerances={"custom": {"int8": Tolerance(rtol=0.0, atol=0.0)}},
)
