"""As many outputs as a list has items, of an operator of ONNX alone, with a reference in torch."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance

SPEC = OpSpec(
    name="add_each",
    summary="Add each number of a list to a tensor.",
    torch=None,
    onnx=OnnxOp(domain="variadic.AddEach", op_type="AddEach"),
    inputs=(Input(name="x", type="int32", dims=("...",)),),
    attributes=(Attribute(name="numbers", kind="ints", minimum=-100, maximum=100),),
    outputs=(Output(name="sums", type="int32", shape=SameAs(input="x"), variadic="numbers"),),
    tolerances={"custom": {"int32": Tolerance(rtol=0.0, atol=0.0)}},
    reference="torch",
)
