"""Every kind of size in one operator: "..." in front, a convolution's formula, N + 1, an axis by attribute, a rank.

Some of its attributes are keywords of C++ or Python in ONNX.
"""

from opmatrix.spec import Attribute, Dims, FromKernel, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

FEW = Tolerance(rtol=1e-6, atol=1e-6)
SPEC = OpSpec(
    name="strided",
    summary="Convolve the last axis, find the largest along an axis, and keep the rows whose sum is positive.",
    torch=TorchOp(name="sizes::strided"),
    onnx=OnnxOp(domain="test.sizes", op_type="Strided"),
    inputs=(
        Input(name="x", type="float32", dims=("...", "L"), rank="R"),
        Input(name="weight", type="float32", dims=("groups*K",)),
        Input(name="factors", type="float32", dims=("L", "L")),
        Input(name="counts", type="int64", dims=("P + 1",)),
        Input(name="pads", type="int64", dims=("2*R",), optional=True),
        Input(name="first", type="float32", dims=("Q",), optional=True, no_effect="only its size counts"),
        Input(name="second", type="float32", dims=(3, "Q"), optional=True, no_effect="only its size counts"),
    ),
    attributes=(
        Attribute(name="dim", kind="int", default=-1, onnx_name="in"),
        Attribute(name="groups", kind="int", default=1, allowed=(1, 2, 3)),
        Attribute(name="k", kind="int", default=2, minimum=0, maximum=5, torch_name="most", onnx_name="for"),
        Attribute(name="padding", kind="ints", default=(0,), minimum=0, maximum=3, onnx_name="signed"),
        Attribute(name="stride", kind="ints", default=(1,), minimum=1, maximum=3),
        Attribute(name="dilation", kind="ints", default=(1,), minimum=1, maximum=3),
    ),
    outputs=(
        Output(
            name="y", type="float32",
            shape=Dims(dims=("...", "(L + 2*padding[0] - dilation[0]*(K - 1) - 1) // stride[0] + 1")),
        ),
        Output(name="largest", type="float32", shape=SameAs(input="x", replace={"dim": None})),
        Output(name="repeated", type="float32", shape=SameAs(input="x", replace={"dim": "k * x.shape[dim]"})),
        Output(name="flat", type="int64", shape=Dims(dims=("prod(...)", "P"))),
        Output(name="kept", type="float32", shape=FromKernel(dims=("M", "L"))),
        Output(name="rows", type="int64", shape=FromKernel(dims=("M",))),
        Output(name="slices", type="float32", shape=FromKernel(input="x", replace={"dim": "Z"})),
        Output(name="places", type="int64", shape=FromKernel(dims=("Z",))),
    ),
    tolerances={"custom": {"float32": FEW, "int64": Tolerance(rtol=0.0, atol=0.0)}},
)  # fmt: skip
