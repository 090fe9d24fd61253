"""An overload of the torch operator of ops/written, whose schema has a number ahead of the tensors, and a gradient."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="rows",
    summary="Multiply x by weights and a factor, and add or subtract a tensor.",
    torch=TorchOp(
        name="schemas::pool",
        schema="pool.rows(float lambda, Tensor self, Tensor input, Tensor? other=None, *, bool signed=False, "
        "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
        "MemoryFormat? memory_format=None, Scalar? scalar=None, Generator? generator=None, int copies=1, "
        "bool inplace=False, float extra=1) -> Tensor",
    ),
    onnx=OnnxOp(domain="test.schemas", op_type="Rows"),
    inputs=(
        Input(name="x", type="float64", dims=("N", "C"), torch_name="input"),
        Input(name="weight", type="float64", same_as="x", torch_name="self"),
        Input(name="other", type="float64", same_as="x", optional=True),
    ),
    attributes=(
        Attribute(name="is_signed", kind="bool", default=False, torch_name="signed"),
        Attribute(name="factor", kind="float", torch_name="lambda"),
    ),
    outputs=(Output(name="y", type="float64", shape=SameAs(input="x")),),
    tolerances={"custom": {"float64": Tolerance(rtol=1e-12, atol=1e-12)}},
)
