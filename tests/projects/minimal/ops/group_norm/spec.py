"""Group normalization with what the seeds' has, and no more: float32, one lowering."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="group_norm",
    summary="Normalize each group of channels of each sample, then scale and shift it.",
    torch=TorchOp(name="mynamespace::custom_group_norm"),
    onnx=OnnxOp(domain="mydomain", op_type="testgroupnorm"),
    inputs=(
        Input(name="x", type="float32", dims=("N", "C", "...")),
        Input(name="num_groups", type="float32", dims=(1,)),
        Input(name="scale", type="float32", dims=("C",)),
        Input(name="bias", type="float32", dims=("C",)),
    ),
    attributes=(Attribute(name="epsilon", kind="float", torch_name="eps", minimum=0.0),),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=1e-6, atol=1e-6)}},
)
