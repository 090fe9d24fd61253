"""Writes x in place: x + alpha * y."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="axpy",
    summary="Add a multiple of y to x.",
    torch=TorchOp(name="cst::axpy_", schema="cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1) -> ()"),
    onnx=OnnxOp(domain="cst.domain", op_type="Axpy"),
    types={"T": ("float32", "float64")},
    inputs=(Input(name="x", type="T"), Input(name="y", type="T", same_as="x")),
    attributes=(Attribute(name="alpha", kind="float", default=1.0),),
    outputs=(Output(name="z", type="T", shape=SameAs(input="x"), writes="x", may_inplace="x"),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-6, atol=1e-6),
            "float64": Tolerance(rtol=1e-14, atol=1e-14),
        }
    },
)
