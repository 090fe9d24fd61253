"""Modulated deformable convolution (DCNv2) of mmcv, with its node and the arguments of its function."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

HEIGHT = "(H + 2*padding[0] - dilation[0]*(KH - 1) - 1) // stride[0] + 1"
WIDTH = "(W + 2*padding[1] - dilation[1]*(KW - 1) - 1) // stride[1] + 1"

SPEC = OpSpec(
    name="modulated_deform_conv",
    summary="Convolve samples of x at positions that offsets move, each times its mask.",
    torch=TorchOp(
        name="mmcv::modulated_deform_conv2d",
        schema=(
            "mmcv::modulated_deform_conv2d(Tensor input, Tensor offset, Tensor mask, Tensor weight, "
            "Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] dilation=1, int groups=1, "
            "int deform_groups=1) -> Tensor"
        ),
        batch="N",
        backward="modulated_deform_conv_backward",
    ),
    onnx=OnnxOp(domain="mmcv", op_type="MMCVModulatedDeformConv2d"),
    types={"T": ("float32", "float64", "float16")},
    inputs=(
        Input(name="x", type="T", torch_name="input", dims=("N", "groups*D", "H", "W"), doc="the images"),
        Input(
            name="offset", type="T", dims=("N", "2*deform_groups*KH*KW", HEIGHT, WIDTH),
            doc="for each tap of a group, how far its row and its column move",
        ),
        Input(name="mask", type="T", dims=("N", "deform_groups*KH*KW", HEIGHT, WIDTH), doc="a factor for each tap"),
        Input(name="weight", type="T", dims=("groups*F", "D", "KH", "KW"), doc="the filters"),
        Input(name="bias", type="T", dims=("groups*F",), optional=True, doc="a summand for each channel of y"),
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
    outputs=(Output(name="y", type="T", shape=Dims(dims=("N", "groups*F", HEIGHT, WIDTH)), doc="the convolution"),),
    cpu_levels=True,
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
            "float16": Tolerance(rtol=2.0**-10, atol=2.0**-24),
        },
    },
)  # fmt: skip
