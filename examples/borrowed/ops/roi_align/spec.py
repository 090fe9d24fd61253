"""Features of boxes, averaged over a grid, as torchvision::roi_align (0.29) has it."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

SPEC = OpSpec(
    name="roi_align",
    summary="Cut boxes out of feature maps, each sampled between pixels and averaged to one size.",
    torch=TorchOp(name="borrowed::roi_align"),
    onnx=OnnxOp(domain="borrowed", op_type="RoiAlign"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="input", type="T", dims=("N", "C", "H", "W"), doc="feature maps"),
        Input(name="rois", type="T", dims=("K", 5), doc="boxes: index of the map, then x1, y1, x2, y2 in the image"),
    ),
    attributes=(
        Attribute(name="spatial_scale", kind="float", doc="pixels of a feature map per pixel of the image"),
        Attribute(name="pooled_height", kind="int", minimum=1, doc="bins of a box from top to bottom"),
        Attribute(name="pooled_width", kind="int", minimum=1, doc="bins of a box from left to right"),
        Attribute(name="sampling_ratio", kind="int", doc="samples of a bin along each axis; 0 or less: one per pixel"),
        Attribute(name="aligned", kind="bool", doc="whether the middle of a pixel is half a pixel from its index"),
    ),
    outputs=(
        Output(
            name="pooled", type="T", shape=Dims(dims=("K", "C", "pooled_height", "pooled_width")),
            doc="the mean of each bin",
        ),
    ),
    cpu_levels=True,
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-6, atol=1e-6),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
        },
    },
)  # fmt: skip
