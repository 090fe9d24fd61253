"""Numbers rounded to a grid of integers with a scale: Quant of qonnx, with its node, attributes and rounding modes."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp, ValueRule

MODES = ("ROUND", "HALF_EVEN", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN")
BITS = tuple(float(bits) for bits in range(1, 33))

SPEC = OpSpec(
    name="quant",
    summary="Round to integers of some bits, with a scale and a zero point, and convert them back.",
    torch=TorchOp(
        name="qonnx::quant",
        schema="qonnx::quant(Tensor inp_tensor, Tensor scale, Tensor zeropt, Tensor bitwidth, "
        "bool signed, bool narrow, str rounding_mode) -> Tensor",
    ),
    onnx=OnnxOp(domain="qonnx.custom_op.general", op_type="Quant"),
    inputs=(
        Input(name="x", type="float32", torch_name="inp_tensor", dims=("...",), doc="any shape"),
        Input(name="scale", type="float32", doc="between two numbers of the grid; its shape broadcasts to that of x"),
        Input(name="zeropt", type="float32", doc="the integer that 0 becomes; its shape broadcasts to that of x"),
        Input(
            name="bitwidth", type="float32", values=ValueRule(allowed=BITS),
            doc="how many bits the integers have; its shape broadcasts to that of x",
        ),
    ),
    attributes=(
        Attribute(
            name="is_signed", kind="bool", torch_name="signed", onnx_name="signed",
            doc="whether the integers are -2**(b - 1) to 2**(b - 1) - 1, otherwise 0 to 2**b - 1",
        ),
        Attribute(
            name="narrow", kind="bool",
            doc="whether the range lacks its least integer, or without a sign the largest",
        ),
        Attribute(
            name="rounding_mode", kind="string", default="ROUND", allowed=(*MODES, *map(str.lower, MODES)),
            doc="how a number between two integers is rounded",
        ),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x"), doc="x, quantized"),),
    discontinuous="rounds x / scale + zeropt",
    tolerances={"custom": {"float32": Tolerance(rtol=0.0, atol=0.0)}},
)  # fmt: skip
