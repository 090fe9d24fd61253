"""A torch schema as no declaration derives it: attributes ahead of tensors, names of keywords, parts after the star."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="written",
    summary="Sum windows of the rows of x, scale them, and add an offset and a shift; count windows above a level.",
    torch=TorchOp(
        name="schemas::pool",
        schema="schemas::pool(float level, Tensor self, SymInt[2] size, str from, int[2] stride=1, Tensor? shift=None, "
        "*, Tensor weight, float scale=2, int[2] register=[1, 0], SymInt dim=-1, Tensor? mask=None) "
        "-> (Tensor sums, Tensor above)",
    ),
    onnx=OnnxOp(domain="test.schemas", op_type="Pool"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("H", "W"), torch_name="self"),
        Input(name="weight", type="T", dims=("W",)),
        Input(name="mask", type="bool", dims=("H", "W"), optional=True),
        Input(name="offset", type="T", dims=(1,), optional=True, torch_name="shift"),
    ),
    attributes=(
        Attribute(name="window", kind="ints", minimum=1, maximum=4, torch_name="size"),
        Attribute(name="stride", kind="ints", default=(1, 1), minimum=1, maximum=4),
        Attribute(name="factor", kind="float", default=2.0, torch_name="scale"),
        Attribute(name="level", kind="float"),
        Attribute(name="start", kind="string", default="zero", allowed=("zero", "one"), torch_name="from"),
        Attribute(name="flips", kind="ints", default=(1, 0), minimum=0, maximum=1, torch_name="register"),
        Attribute(name="axis", kind="int", default=-1, minimum=-2, maximum=1, torch_name="dim"),
    ),
    outputs=(
        Output(
            name="sums",
            type="T",
            shape=Dims(dims=("(H - window[0]) // stride[0] + 1", "(W - window[1]) // stride[1] + 1")),
        ),
        Output(name="above", type="int64", shape=SameAs(input="x", replace={"axis": 1})),
    ),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
            "float64": Tolerance(rtol=1e-13, atol=1e-13),
            "int64": Tolerance(rtol=0.0, atol=0.0),
        },
    },
)
