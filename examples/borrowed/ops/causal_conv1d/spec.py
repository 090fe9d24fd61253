"""A depthwise convolution that looks back alone, as causal_conv1d (1.6) has it in Mamba's blocks."""

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="causal_conv1d",
    summary="Convolve each channel with its own few weights over what came before, and keep what the next call needs.",
    torch=TorchOp(name="borrowed::causal_conv1d"),
    onnx=OnnxOp(domain="borrowed", op_type="CausalConv1d"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("B", "D", "L"), doc="sequences of L steps"),
        Input(name="weight", type="T", dims=("D", "W"), doc="per channel, the last for the step itself"),
        Input(name="bias", type="T", dims=("D",), optional=True, doc="one summand per channel"),
        Input(
            name="initial_states", type="T", dims=("B", "D", "W - 1"), optional=True,
            doc="the steps before x; zeros if absent",
        ),
    ),
    attributes=(
        Attribute(
            name="activation", kind="string", default="none", allowed=("none", "silu", "swish"),
            doc="what the sums go through: swish is another name of silu",
        ),
    ),
    outputs=(
        Output(name="out", type="T", shape=SameAs(input="x"), doc="the sums, activated"),
        Output(
            name="final_states", type="T", shape=Dims(dims=("B", "D", "W - 1")),
            doc="the last steps of initial_states and x: initial_states of what follows",
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
