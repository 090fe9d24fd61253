"""The gradients of modulated_deform_conv, as mmcv has them: an operator that its torch operator calls."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

HEIGHT = "(H + 2*padding[0] - dilation[0]*(KH - 1) - 1) // stride[0] + 1"
WIDTH = "(W + 2*padding[1] - dilation[1]*(KW - 1) - 1) // stride[1] + 1"

SPEC = OpSpec(
    name="modulated_deform_conv_backward",
    summary="Compute the gradients of modulated_deform_conv for its inputs from that of its output.",
    torch=TorchOp(name="mmcv::modulated_deform_conv2d_backward"),
    onnx=OnnxOp(domain="mmcv", op_type="MMCVModulatedDeformConv2dBackward"),
    types={"T": ("float32", "float64", "float16")},
    inputs=(
        Input(name="grad_y", type="T", dims=("N", "groups*F", HEIGHT, WIDTH), doc="the gradient of the convolution"),
        Input(name="x", type="T", dims=("N", "groups*D", "H", "W"), doc="the images"),
        Input(
            name="offset", type="T", dims=("N", "2*deform_groups*KH*KW", HEIGHT, WIDTH),
            doc="for each tap of a group, how far its row and its column move",
        ),
        Input(name="mask", type="T", dims=("N", "deform_groups*KH*KW", HEIGHT, WIDTH), doc="a factor for each tap"),
        Input(name="weight", type="T", dims=("groups*F", "D", "KH", "KW"), doc="the filters"),
    ),
    attributes=(
        Attribute(name="stride", kind="ints", default=(1, 1), minimum=1, doc="rows and columns from window to window"),
        Attribute(name="padding", kind="ints", default=(0, 0), minimum=0, doc="zeros on each side of rows and columns"),
        Attribute(name="dilation", kind="ints", default=(1, 1), minimum=1, doc="rows and columns from tap to tap"),
        Attribute(name="groups", kind="int", default=1, minimum=1, doc="groups of channels with filters of their own"),
        Attribute(
            name="deform_groups", kind="int", default=1, minimum=1,
            doc="groups of channels with offsets and masks of their own; divides the channels of x",
        ),
    ),
    outputs=(
        Output(name="grad_x", type="T", shape=SameAs(input="x"), doc="for the images"),
        Output(name="grad_offset", type="T", shape=SameAs(input="offset"), doc="for the offsets"),
        Output(name="grad_mask", type="T", shape=SameAs(input="mask"), doc="for the masks"),
        Output(name="grad_weight", type="T", shape=SameAs(input="weight"), doc="for the filters"),
        Output(name="grad_bias", type="T", shape=Dims(dims=("groups*F",)), doc="for the summands, also without any"),
    ),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
            "float16": Tolerance(rtol=2.0**-10, atol=2.0**-24),
        },
    },
)  # fmt: skip
