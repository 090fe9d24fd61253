"""A deformable convolution with torchvision's arguments: every size of offset and mask is computed."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

HEIGHT = "(H + 2*padding[0] - dilation[0]*(KH - 1) - 1) // stride[0] + 1"
WIDTH = "(W + 2*padding[1] - dilation[1]*(KW - 1) - 1) // stride[1] + 1"
SPEC = OpSpec(
    name="deform_conv",
    summary="Convolve an image that is read between its pixels, at places that an input moves.",
    torch=TorchOp(name="deformable::deform_conv"),
    onnx=OnnxOp(domain="test.deformable", op_type="DeformConv"),
    inputs=(
        Input(name="x", type="float64", dims=("N", "groups*CG", "H", "W"), doc="the images"),
        Input(name="weight", type="float64", dims=("groups*OG", "CG", "KH", "KW"), doc="the taps"),
        Input(name="offset", type="float64", dims=("N", "2*offset_groups*KH*KW", HEIGHT, WIDTH), doc="rows, columns"),
        Input(name="mask", type="float64", dims=("N", "offset_groups*KH*KW", HEIGHT, WIDTH), optional=True),
        Input(name="bias", type="float64", dims=("groups*OG",), optional=True),
    ),
    attributes=(
        Attribute(name="groups", kind="int", default=1, minimum=1, maximum=4),
        Attribute(name="offset_groups", kind="int", default=1, minimum=1, maximum=4),
        Attribute(name="stride", kind="ints", default=(1, 1), minimum=1, maximum=3),
        Attribute(name="padding", kind="ints", default=(0, 0), minimum=0, maximum=3),
        Attribute(name="dilation", kind="ints", default=(1, 1), minimum=1, maximum=3),
    ),
    outputs=(Output(name="y", type="float64", shape=Dims(dims=("N", "groups*OG", HEIGHT, WIDTH))),),
    tolerances={"custom": {"float64": Tolerance(rtol=1e-10, atol=1e-10)}},
)
