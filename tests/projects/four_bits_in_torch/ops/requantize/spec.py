"""int8 and uint8 in torch that are int4 and uint4 in the node: a required and an optional input, and outputs."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp, ValueRule

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="requantize",
    summary="Multiply integers of four bits by a factor, saturated, and return them as floats too.",
    torch=TorchOp(name="four_bits::requantize"),
    onnx=OnnxOp(domain="four_bits.torch", op_type="Requantize"),
    min_opset=21,
    inputs=(
        Input(name="w", type="int8", onnx_type="int4", dims=("N", "K"), values=ValueRule(minimum=-8, maximum=7)),
        Input(name="offset", type="uint8", onnx_type="uint4", dims=("N",), optional=True, values=ValueRule(maximum=15)),
    ),
    attributes=(Attribute(name="factor", kind="int", default=2, minimum=-100, maximum=100),),
    outputs=(
        Output(name="q", type="int8", onnx_type="int4", shape=SameAs(input="w")),
        Output(name="real", type="float32", shape=SameAs(input="w")),
        Output(name="code", type="uint8", onnx_type="uint4", shape=Dims(dims=("N", "K"))),
    ),
    tolerances={"custom": {"int8": EXACT, "uint8": EXACT, "float32": EXACT}},
)
