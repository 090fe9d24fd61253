"""`OpSpec.elementwise`: declarations with one shape can have it, and others cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opmatrix.declaration.validation.fields import Mistake
from opmatrix.declaration.validation.operator import declaration, handwritten_files
from opmatrix.spec import Attribute, Dims, FromKernel, Input, Output, Override, SameAs, TorchOp, ValueRule
from tests.support.specs import declare

X = Input(name="x", type="float32")
Y = Output(name="y", type="float32", shape=SameAs(input="x"))
SPEC = declare(
    "pointwise", X, Y, torch="my::pointwise", onnx="my.domain::MyPointwise", summary="Any.", elementwise=True
)


def part(name: str, *dims: str | int, **fields: Any) -> Input:
    return Input(name=name, type="float32", dims=dims or None, **fields)


def mistakes(**fields: Any) -> list[Mistake]:
    return list(declaration(replace(SPEC, **fields), "pointwise"))


@pytest.mark.parametrize(
    "inputs",
    [
        (X,),
        (X, part("w", same_as="x"), part("v", same_as="w")),
        (part("x", "N", "C", "H", 7), part("w", "N", "C", "H", 7)),
        (part("x", "N", "..."), part("w", "N", "...", further_as="x"), part("v", "N", "...", further_as="w")),
        (part("x", "..."), part("w", "...", further_as="x")),
    ],
)
def test_inputs_of_one_shape(inputs: tuple[Input, ...]) -> None:
    assert mistakes(inputs=inputs) == []
    assert mistakes(inputs=inputs, outputs=(Y, replace(Y, name="z", optional=True))) == []


REMEDY = "or remove elementwise=True"
WRONG = [
    ({"torch": None}, "elementwise", "found True, allowed: False, because torch=None: only a generated binding gets"),
    ({"torch": TorchOp(name="aten::gelu", overrides=(Override(name="aten::gelu"),))}, "elementwise",
     "found True, allowed: False, because torch has the kernel: only a generated binding gets tensors of torch that "
     "are not contiguous. Remove elementwise=True"),
    ({"torch": TorchOp(name="my::f", python=True)}, "elementwise",
     "allowed: False, because ops/pointwise/torch_op.py defines the operator: "),
    ({"inputs": (part("x", "N", "..."), part("w", "N", "..."))}, "inputs[1]", "'w' may have another shape than 'x', "),
    ({"inputs": (part("x", "N", "C", "H", "W"), part("w", "N", "C", "W", "H"))}, "inputs[1]", "'w' may have another "),
    ({"inputs": (X, part("w", same_as="x", optional=True))}, "inputs[1]",
     "'w' is optional, allowed with elementwise=True: required tensors. Declare it so, " + REMEDY),
    ({"inputs": (X, part("w", variadic=True))}, "inputs[1]", "'w' is variadic, allowed with elementwise=True: r"),
    ({"inputs": (replace(X, values=ValueRule(finite=True)),)}, "inputs[0]",
     "which the binding checks along its axes, allowed with elementwise=True: None. Check them in the kernel, or "),
    ({"outputs": (Y, replace(Y, name="z", shape=SameAs(input="x", replace={0: None})))}, "outputs[1]",
     "'z' may have another shape than the inputs, allowed with elementwise=True: SameAs(input=...) without replace. "
     "Write it, " + REMEDY),
    ({"inputs": (part("x", "N", "C", "H", "W"),), "outputs": (replace(Y, shape=Dims(dims=("N", "C", "H", "W"))),)},
     "outputs[0]", "'y' may have another shape than the inputs, "),
    ({"outputs": (replace(Y, shape=FromKernel(rank=4)),)}, "outputs[0]", "'y' may have another shape than the inputs"),
    ({"attributes": (Attribute(name="on", kind="bool"),), "outputs": (Y, replace(Y, name="z", optional="on"))},
     "outputs[1]", "'z' has optional='on', allowed with elementwise=True: one tensor of the inputs' shape. Remove "
     "optional, " + REMEDY),
    ({"attributes": (Attribute(name="count", kind="int", minimum=1),), "outputs": (replace(Y, variadic="count"),)},
     "outputs[0]", "'y' has variadic='count', allowed with elementwise=True: one tensor of the inputs' shape. Re"),
    ({"inputs": (part("x", "N", "C"),)}, "elementwise",
     "found True, allowed: False, because 'x' has rank 2, and torch's memory formats channels_last and "
     "channels_last_3d have rank 4 and 5: it would change nothing. Remove elementwise=True"),
    ({"attributes": (Attribute(name="common_format", kind="int"),)}, "'common_format'", "means something else in the"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "field", "expected"), WRONG)
def test_a_declaration_that_cannot_have_it(fields: dict[str, Any], field: str, expected: str) -> None:
    (found,) = mistakes(**fields)
    assert found.field == field and expected in found.text
    assert mistakes(**fields, elementwise=False) == []


def test_a_binding_of_its_own_cannot_have_it() -> None:
    files = {"kernel.h", "torch.cc"}
    (found,) = handwritten_files(SPEC, files)
    assert found.field == "torch.cc"
    assert found.text == (
        "found with elementwise=True in spec.py, allowed: one of both; the file decides which tensors are copied. "
        "Remove elementwise=True, or this file"
    )
    assert list(handwritten_files(replace(SPEC, elementwise=False), files)) == []
