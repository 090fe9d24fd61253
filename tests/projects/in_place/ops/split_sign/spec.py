"""An overload with out=: one output in an argument, one in an input, one returned; arguments `from` and `write`.

The namespace begins with _, and `Tensor!` has no letter, as in schemas of vLLM."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="split_sign",
    summary="Split x into its positive and its negative part, and count calls of each row.",
    torch=TorchOp(
        name="_cst::split",
        schema=(
            "_cst::split.out(Tensor from, Tensor! calls, int write=1, *, Tensor(a!) positive) "
            "-> (Tensor(a!), Tensor negative)"
        ),
    ),
    onnx=OnnxOp(domain="cst.domain", op_type="SplitSign"),
    types={"T": ("float32",)},
    inputs=(
        Input(name="x", type="T", torch_name="from", dims=("N", "C")),
        Input(name="calls", type="int64", dims=("N",)),
    ),
    attributes=(Attribute(name="step", kind="int", default=1, torch_name="write"),),
    outputs=(
        Output(name="negative", type="T", shape=SameAs(input="x")),
        Output(name="called", type="int64", shape=SameAs(input="calls"), writes="calls"),
        Output(name="positive", type="T", shape=SameAs(input="x")),
    ),
    tolerances={"custom": {"float32": Tolerance(rtol=0.0, atol=0.0), "int64": Tolerance(rtol=0.0, atol=0.0)}},
)
