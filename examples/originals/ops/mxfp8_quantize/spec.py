"""Blocks of 32 numbers as float8 with a common scale: mxfp8_quantize of TransformerEngine, with its schema and node."""

from opmatrix.spec import Dims, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="mxfp8_quantize",
    summary="Round each 32 neighbours of the last axis to float8_e4m3fn, after division by a common power of two.",
    torch=TorchOp(name="tex::mxfp8_quantize"),
    onnx=OnnxOp(domain="trt", op_type="TRT_MXFP8QuantizeLinear"),
    types={"T": ("float32", "float16", "bfloat16")},
    inputs=(Input(name="tensor", type="T", dims=("...", "K"), doc="any shape with an axis"),),
    outputs=(
        Output(name="output", type="uint8", shape=SameAs(input="tensor"), doc="the bits of the float8_e4m3fn values"),
        Output(
            name="scale_inv",
            type="uint8",
            shape=Dims(dims=("(prod(...) + 127) // 128 * 128", "((K + 31) // 32 + 3) // 4 * 4")),
            doc="the exponent of the scale of each block plus 127, 0 beyond the blocks",
        ),
    ),
    tolerances={"custom": {"uint8": Tolerance(rtol=0.0, atol=0.0)}},
)
