"""Group normalization, as in the seeds: torch's mynamespace::custom_group_norm, ONNX's mydomain::mygroupnorm."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="group_norm",
    summary="Normalize each group of channels of each sample to mean 0 and variance 1, then scale and shift it.",
    torch=TorchOp(name="mynamespace::custom_group_norm"),
    onnx=OnnxOp(domain="mydomain", op_type="mygroupnorm", versions=(1, 2)),
    types={"T": ("float32", "float64", "float16", "bfloat16")},
    inputs=(
        Input(name="x", type="T", dims=("N", "C", "..."), doc="samples, channels, and any further axes"),
        Input(name="num_groups", type="float32", dims=(1,), doc="a whole number that divides C"),
        Input(name="scale", type="T", dims=("C",), doc="one factor per channel"),
        Input(name="bias", type="T", dims=("C",), doc="one summand per channel"),
    ),
    attributes=(
        Attribute(
            name="epsilon", kind="float", default=1e-5, torch_name="eps", minimum=0.0, doc="added to the variance"
        ),
    ),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x"), doc="x, normalized"),),
    lowerings=("custom", "decomposed"),
    full_range=True,
    cpu_levels=True,
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=2.5e-7, atol=1e-7),
            "float64": Tolerance(rtol=1e-13, atol=1e-13),
            "float16": Tolerance(rtol=2.0**-10, atol=2.0**-24),
            "bfloat16": Tolerance(rtol=2.0**-7, atol=2.0**-133),
        },
        "decomposed": {
            "float32": Tolerance(rtol=2.5e-7, atol=1e-7),
            "float64": Tolerance(rtol=1e-13, atol=1e-13),
            "float16": Tolerance(rtol=2.0**-10, atol=2.0**-24),
            "bfloat16": Tolerance(rtol=2.0**-7, atol=2.0**-133),
        },
    },
)
