"""Mistakes of `onnx_type`, by which a tensor of torch has another dtype in the ONNX node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opmatrix.codegen.python_modules import render
from opmatrix.declaration.load import Operator
from opmatrix.project.cells import Cell
from opmatrix.signature.signature import has_function_body
from opmatrix.spec import Case, FromKernel, Input, Model, Output, Override, Random, SameAs, TorchOp, ValueRule
from tests.declaration.schemas import found
from tests.support.specs import declare

X = Input(name="x", type="int8", onnx_type="int4", values=ValueRule(minimum=-8, maximum=7))
N = Input(name="n", type="uint8", onnx_type="uint4", dims=("K",), values=ValueRule(maximum=15))
Y = Output(name="y", type="int8", onnx_type="int4", shape=SameAs(input="x"))
SPEC = declare(
    "packed", X, N, Y, torch="my::packed", onnx="my.domain::Packed", summary="Numbers of four bits.", min_opset=21
)


def test_narrower_limits_are_allowed_and_no_function_body_is_written_whose_inputs_would_be_int4() -> None:
    limits: list[dict[str, Any]] = [
        {"minimum": 0, "maximum": 15},
        {"maximum": 3},
        {"index_into": 16},
        {"allowed": (1, 15)},
    ]
    for limit in limits:
        assert found(replace(SPEC, inputs=(X, replace(N, values=ValueRule(**limit))))) == []
    both = replace(SPEC, lowerings=("custom", "decomposed"))
    assert not has_function_body(both)
    plain = replace(both, inputs=(replace(X, onnx_type=None),), outputs=(replace(Y, onnx_type=None),))
    assert has_function_body(plain)


RULE = "allowed: ValueRule(minimum=-8, maximum=7), or narrower limits. The tensor in torch holds more numbers than int4"
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "another type": ({"inputs": (replace(X, type="int16"), N)},
        "inputs[0].onnx_type: found 'int4' for the type 'int16', allowed: 'int4' for int8, 'uint4' for uint8"),
    "the other sign": ({"outputs": (replace(Y, onnx_type="uint4"),)}, "found 'uint4' for the type 'int8', allowed: "),
    "no rule": ({"inputs": (replace(X, values=None), N)}, f"inputs[0].values: found None, {RULE}"),
    "a wide limit": ({"inputs": (replace(X, values=ValueRule(minimum=-9, maximum=7)), N)},
        f"found other limits, {RULE}"),
    "one limit": ({"inputs": (replace(X, values=ValueRule(maximum=7)), N)}, f"found other limits, {RULE}"),
    "a size as the limit": ({"inputs": (replace(X, values=ValueRule(index_into="K")), N)},
        f"found other limits, {RULE}"),
    "an allowed value that does not fit": ({"inputs": (replace(X, values=ValueRule(allowed=(1, 9))), N)},
        f"found other limits, {RULE}"),
    "an older opset": ({"min_opset": 18},
        "min_opset: found 18, allowed: from 21 on, because exports cast 'x' to int4, which Cast takes since then"),
    "no torch": ({"torch": None}, "inputs[0].onnx_type: is set with torch=None; write type='int4'"),
    "an operator of torch's own": ({"torch": TorchOp(name="aten::abs", overrides=(Override(name="aten::abs"),))},
        "inputs[0].onnx_type: is set for an operator without a torch library of its own"),
    "a variadic output": ({"outputs": (replace(Y, variadic="x"),), "inputs": (replace(X, variadic=True),)},
        "outputs[0].onnx_type: is set beside variadic, allowed: one of both"),
    "an output in the memory of an input": ({"outputs": (replace(Y, may_inplace="x"),)},
        "outputs[0].onnx_type: is set beside may_inplace"),
    "an input whose memory an output has": ({"outputs": (replace(Y, onnx_type=None, may_inplace="x"),)},
        "inputs[0].onnx_type: is set for an input whose memory an output may have"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_declaration_is_named(mistake: str) -> None:
    changes, message = MISTAKES[mistake]
    lines = found(replace(SPEC, **changes))
    assert any(message in line for line in lines), lines


def test_cells_that_cannot_cast() -> None:
    model = Model(name="m", cases=(Case(name="c", inputs={"x": Random(shape=(2,)), "n": Random(shape=(2,))}),))
    operator = Operator(spec=SPEC, models=(model,))
    legacy = operator.unavailable_reason(Cell.parse("torch2.13-legacy-opset20-ort1.31"))
    assert legacy is not None and "legacy exporter writes no opset from 21 on" in legacy
    assert operator.unavailable_reason(Cell.parse("torch2.13-dynamo-opset21-ort1.31")) is None
    assert operator.run_by("1.21").models[0].unsupported == "ONNX Runtime 1.21 casts no int4 and no uint4; 1.24 does"
    assert not operator.run_by("1.24").models[0].unsupported


def test_the_schema_has_the_dtypes_of_the_node_and_the_lowering_casts() -> None:
    several = (Y, Output(name="count", type="int64", shape=FromKernel(rank=1)))
    files = render(replace(SPEC, inputs=(X, replace(N, optional=True)), outputs=several))
    assert "tensor(int4)" in files["schema.py"] and "tensor(uint4)" in files["schema.py"]
    assert "tensor(int8)" not in files["schema.py"] and "torch.int8" in files["fake.py"]
    body = files["lowering.py"].partition('silently."""')[2]
    assert body.split("\n")[1:] == [
        '    x = g.op("Cast", x, to_i=22)',
        "    if n is not None:",
        '        n = g.op("Cast", n, to_i=21)',
        '    made = g.op("my.domain::Packed", x, n, outputs=2)',
        '    return g.op("Cast", made[0], to_i=3), made[1]',
        "",
    ]
