"""As many outputs as a variadic input has tensors, as torch._foreach_mul: each of the shape of its tensor."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="scale_all",
    summary="Multiply each tensor by a factor.",
    torch=TorchOp(name="variadic::scale_all"),
    onnx=OnnxOp(domain="variadic.ScaleAll", op_type="ScaleAll"),
    types={"T": ("float32", "float64")},
    inputs=(Input(name="xs", type="T", variadic=True, doc="the tensors"),),
    attributes=(Attribute(name="scale", kind="float", default=1.0),),
    outputs=(Output(name="ys", type="T", shape=SameAs(input="xs"), variadic="xs", doc="the products"),),
    tolerances={
        "custom": {"float32": Tolerance(rtol=0.0, atol=0.0), "float64": Tolerance(rtol=0.0, atol=0.0)},
    },
)
