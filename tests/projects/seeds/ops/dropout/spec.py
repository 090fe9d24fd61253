"""A required seed: without a generator, torch's default one gives it. It follows an argument with a default."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="dropout",
    summary="Set elements to zero with probability p, and divide the others by 1 - p.",
    torch=TorchOp(
        name="sown::dropout",
        schema="sown::dropout(Tensor x, float p=0.5, Generator? generator=None) -> Tensor",
    ),
    onnx=OnnxOp(domain="sown.domain", op_type="Dropout"),
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T"),),
    attributes=(
        Attribute(name="seed", kind="int", minimum=0, torch_name="generator"),
        Attribute(name="p", kind="float", default=0.5, minimum=0.0, maximum=0.875),
    ),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-6, atol=0.0),
            "float64": Tolerance(rtol=1e-14, atol=0.0),
        }
    },
)
