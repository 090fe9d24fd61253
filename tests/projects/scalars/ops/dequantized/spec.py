"""The schema has a dtype, a layout and a device without defaults: each has one legal value, which `fixed` gives."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="dequantized",
    summary="Subtract a zero point, and multiply by a scale.",
    torch=TorchOp(
        name="sca::dequantized",
        schema=(
            "sca::dequantized(Tensor x, ScalarType dtype, float scale, Layout layout, int zero_point=0, *, "
            "Device device, ScalarType? accumulated, Layout? kept=None) -> Tensor"
        ),
        fixed={"dtype": "float32", "layout": "strided", "device": "cpu", "accumulated": None},
    ),
    onnx=OnnxOp(domain="sca.domain", op_type="Dequantized"),
    types={"Q": ("int8", "uint8")},
    inputs=(Input(name="x", type="Q"),),
    attributes=(
        Attribute(name="scale", kind="float"),
        Attribute(name="zero_point", kind="int", default=0, minimum=-128, maximum=255),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=1e-6, atol=0.0)}},
)
