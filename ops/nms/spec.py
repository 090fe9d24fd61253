"""Non-maximum suppression with scores, for boxes as detectors have them: an operator with every kind of argument."""

from opmatrix.spec import Attribute, Dims, FromKernel, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

SPEC = OpSpec(
    name="nms",
    summary="Of boxes that overlap much, keep the one with the highest score.",
    torch=TorchOp(name="opmatrix::nms"),
    onnx=OnnxOp(domain="opmatrix", op_type="NonMaximumSuppression"),
    types={"T": ("float32", "float64", "float16", "bfloat16")},
    inputs=(
        Input(
            name="boxes", type="T", dims=("A", "N + 4 - A"), at={"axis": 4},
            doc="N boxes of 4 numbers each, these along `axis`",
        ),
        Input(name="scores", type="T", dims=("N",), doc="one score per box"),
        Input(name="classes", type="int64", dims=("N",), optional=True, doc="only boxes of one class are rivals"),
        Input(name="valid", type="bool", dims=("N",), optional=True, doc="which boxes take part at all"),
        Input(name="factors", type="T", dims=("N",), variadic=True, doc="further scores, multiplied into the first"),
    ),
    attributes=(
        Attribute(
            name="iou_threshold", kind="float", default=0.5, minimum=0.0, maximum=1.0,
            doc="the share of two boxes' union that their intersection may have",
        ),
        Attribute(name="score_threshold", kind="float", default=0.0, doc="a score must be greater than this"),
        Attribute(name="max_boxes", kind="int", default=0, minimum=0, doc="how many are kept at most; 0: any number"),
        Attribute(
            name="format", kind="string", default="corners", allowed=("corners", "center"),
            doc="two opposite corners x, y, x, y, or center and size x, y, w, h",
        ),
        Attribute(
            name="coordinates", kind="ints", default=(0, 1, 2, 3), minimum=0, maximum=3,
            doc="where along the axis these four stand: (1, 0, 3, 2) for y, x, y, x",
        ),
        Attribute(name="axis", kind="int", default=-1, minimum=-2, maximum=1, doc="the axis of boxes with 4 numbers"),
    ),
    outputs=(
        Output(name="indices", type="int64", shape=FromKernel(rank=1), doc="the kept boxes, highest score first"),
        Output(
            name="selected", type="T", shape=FromKernel(rank=1), optional=True, doc="their scores, times the factors"
        ),
        Output(name="kept", type="bool", shape=Dims(dims=("N",)), optional=True, doc="per box whether it is kept"),
    ),
    cpu_levels=True,
    tolerances={
        "custom": {
            "int64": Tolerance(rtol=0.0, atol=0.0),
            "bool": Tolerance(rtol=0.0, atol=0.0),
            "float32": Tolerance(rtol=1e-6, atol=0.0),
            "float64": Tolerance(rtol=1e-14, atol=0.0),
            "float16": Tolerance(rtol=0.0, atol=0.0),
            "bfloat16": Tolerance(rtol=0.0, atol=0.0),
        },
    },
)  # fmt: skip
