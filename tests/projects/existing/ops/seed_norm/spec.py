"""Group normalization with existing C++ code: no kernel.h, a handwritten binding for each runtime, Eigen from PyPI."""

from opmatrix.spec import Attribute, Headers, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="seed_norm",
    summary="Normalize each group of channels of each sample.",
    torch=TorchOp(name="seedspace::custom_group_norm"),
    onnx=OnnxOp(domain="seed.domain", op_type="testgroupnorm"),
    inputs=(
        Input(name="x", type="float32", dims=("N", "C", "...")),
        Input(name="num_groups", type="float32", dims=(1,)),
        Input(name="scale", type="float32", dims=("C",)),
        Input(name="bias", type="float32", dims=("C",)),
    ),
    attributes=(Attribute(name="epsilon", kind="float", default=1e-5, torch_name="eps", minimum=0.0),),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=1e-6, atol=1e-6)}},
    headers=(Headers(folder="cmeel.prefix/include/eigen3", distribution="cmeel-eigen"),),
)
