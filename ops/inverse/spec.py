"""Matrix inverse, as in the seeds: torch's own operator, exported as ONNX Runtime's com.microsoft::Inverse."""

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, Override, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="inverse",
    summary="Invert each square matrix of a batch.",
    torch=TorchOp(
        name="aten::linalg_inv",
        # torch.inverse is traced as aten::linalg_inv since torch 1.13; a program may still hold aten::inverse.
        overrides=(Override(name="aten::linalg_inv"), Override(name="aten::inverse")),
    ),
    onnx=OnnxOp(domain="com.microsoft", op_type="Inverse"),
    runtime="contrib",
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T", doc="square matrices, with any axes before their rows"),),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x"), doc="their inverses"),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=2e-5, atol=2e-5),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
        },
    },
)
