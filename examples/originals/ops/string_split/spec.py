"""Strings split at characters: StringSplit of onnxruntime-extensions, with its domain and its node."""

from opmatrix.spec import FromKernel, Input, OnnxOp, OpSpec, Output, Tolerance

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="string_split",
    summary="Split strings at each of some characters; the pieces are the elements of a sparse matrix.",
    torch=None,
    onnx=OnnxOp(domain="ai.onnx.contrib", op_type="StringSplit"),
    inputs=(
        Input(name="input", type="string", dims=("N",), doc="the strings"),
        Input(
            name="delimiter", type="string", dims=(1,),
            doc="characters of ASCII, of which each ends a piece; if it is empty, each character is a piece",
        ),
        Input(name="skip_empty", type="bool", dims=(1,), doc="whether empty pieces are left out"),
    ),
    outputs=(
        Output(
            name="indices", type="int64", shape=FromKernel(dims=("P", 2)),
            doc="for each piece its string and its number there",
        ),
        Output(name="values", type="string", shape=FromKernel(dims=("P",)), doc="the pieces"),
        Output(
            name="shape", type="int64", shape=FromKernel(dims=(2,)),
            doc="the number of strings, and the largest number of pieces",
        ),
    ),
    tolerances={"custom": {"string": EXACT, "int64": EXACT}},
)  # fmt: skip
