"""A torch schema that a declaration contains: what follows from it, and each mismatch with the position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opmatrix.codegen import bindings, python_modules
from opmatrix.signature.signature import constants, stable_abi_since, torch_arguments, torch_qualified, torch_schema
from opmatrix.sizes.rules import list_lengths
from opmatrix.spec import Attribute, OnnxOp, OpSpec, TorchOp
from tests.declaration.schemas import ONE, ROWS, SPEC, WRITTEN, found


def with_schema(text: str, **changed: Any) -> OpSpec:
    return replace(ONE, torch=replace(SPEC.torch, schema=text), **changed)  # type: ignore[type-var]  # SPEC has a torch operator


def test_what_the_declaration_says_of_each_argument() -> None:
    arguments = torch_arguments(WRITTEN)
    assert [a.source.name for a in arguments] == [
        "level", "x", "window", "start", "stride", "offset", "weight", "factor", "flips", "axis", "mask"
    ]  # fmt: skip
    assert [a.name for a in arguments if a.keyword] == ["weight", "scale", "register", "dim", "mask"]
    assert [a.default for a in arguments if a.has_default] == [(1, 1), None, 2.0, (1, 0), -1, None]
    assert list_lengths(WRITTEN) == {"window": 2, "stride": 2, "flips": 2}


def test_the_schema_is_registered_as_its_owner_wrote_it() -> None:
    start = "schemas::pool.rows(float lambda, Tensor self, Tensor input, Tensor? other=None, *, bool signed=False, "
    assert torch_schema(ROWS).startswith(start)
    assert torch_schema(ROWS).endswith(", bool inplace=False, float extra=1) -> Tensor")
    assert torch_qualified(ROWS) == "schemas::pool.rows"
    assert (stable_abi_since(WRITTEN), stable_abi_since(ROWS)) == ("2.10", "2.9")


def test_the_binding_takes_each_argument_from_its_place() -> None:
    text = bindings.render(ROWS)["torch.cc"]
    for line in (
        'torch::Input x("rows", "x", stack[2]);',
        'torch::Input weight("rows", "weight", stack[1]);',
        'torch::OptionalInput other("rows", "other", stack[3]);',
        "const bool is_signed = torch::to_bool(stack[4]);",
        "const double factor = torch::to_double(stack[0]);",
        '    "pool.rows",\n    kSchema,\n    torch::call<torch::Value, from_stack, false>,\n',
    ):
        assert line in text


def test_python_has_names_and_defaults_of_the_schema() -> None:
    fake = python_modules.render(ROWS)["fake.py"]
    assert "    factor: float,\n    weight: torch.Tensor,\n    x: torch.Tensor,\n" in fake
    assert "    other: torch.Tensor | None = None,\n    *,\n    signed: bool = False,\n" in fake
    assert "    is_signed = signed\n" in fake
    called = python_modules.function(ROWS)
    assert called["typed"][0] == "lambda_: float"
    assert called["passed"][:6] == ["lambda_", "self", "input", "other", "signed=signed", "dtype=dtype"]
    assert called["typed"][-1] == "extra: float = 1.0"


def test_an_argument_that_belongs_to_nothing_has_one_value() -> None:
    assert [str(constant) for constant in constants(ROWS)] == [
        *(f"{name} must be None" for name in ("dtype", "layout", "device", "pin_memory", "memory_format", "scalar",
          "generator")),
        "copies must be 1", "inplace must be False", "extra must be 1.0",
    ]  # fmt: skip
    assert constants(WRITTEN) == []


def test_a_schema_that_fits_has_no_mistakes() -> None:
    assert found(ONE) == []
    assert found(with_schema("shift(Tensor x, SymInt[2] by, float eps) -> (Tensor shifted)")) == []


# What is in the parentheses of a schema with one result, or the schema.
MISTAKES = {
    "my::shift.overloads(Tensor x, int[2] by, float eps) -> Tensor":
        "column 11: found the overload 'overloads', allowed: one without '__' in front, and none of _dir",
    "Tensor x, int[2] by=1, *, float eps=1e-05, float more":
        "column 60: no input and no attribute is named 'more', or has it as torch_name",
    "Tensor x, int[2] by, float epz":
        "column 38: no input and no attribute is named 'epz'; did you mean 'eps'?, or has it as torch_name",
    "Tensor x, int[2] by, float eps, Tensor? out=None":
        "column 51: no input and no attribute is named 'out', or has it as torch_name",
    "Tensor x, int[2] by, float eps, ScalarType dtype=float":
        "column 43: ScalarType dtype, which is neither an input nor an attribute, allowed: a type with ? and the "
        "default None, or bool, int, SymInt, float with a number as the default; or ScalarType, Layout, Device, or "
        "one of them with ?, without a default",
    "Tensor x, int[2] by, float eps, ScalarType dtype":
        "column 43: ScalarType dtype without a default, allowed with its one legal value in torch.fixed, such as "
        "{'dtype': 'float32'}",
    "Tensor x, int[2] by, float eps, Device? device":
        "column 43: Device? device without a default, allowed with its one legal value in torch.fixed, such as "
        "{'device': None}",
    "Tensor x, int[2] by, float eps, ScalarType[] dtypes": "column 56: no input and no attribute is named 'dtypes'",
    "Tensor x, int[2] by, float eps, int y=0":
        "column 47: 'y' names something else in generated code, allowed: a name that no keyword, input, attribute or "
        "output has",
    "Tensor x, Scalar by, float eps":
        "column 21: Scalar by, allowed: int[] or SymInt[] or int[2], because the attribute 'by' is of kind ints",
    "Tensor x, int[2] by, Scalar? eps":
        "column 32: Scalar? eps, allowed: float or Scalar, because the attribute 'eps' is of kind float",
    "Tensor x, int[2] by, Scalar[] eps":
        "column 32: Scalar[] eps, allowed: float or Scalar, because the attribute 'eps' is of kind float",
    "Tensor x, int[2] by, Scalar eps=2":
        "column 39: 'eps' has the default 2, allowed: 1e-05, the default of the attribute 'eps'; or give that one "
        "none",
    "other::shift(Tensor x, int[2] by, float eps) -> Tensor":
        "column 1: the schema of other::shift, allowed: my::shift, which is torch.name",
    "Tensor? x, int[2] by, float eps": "column 11: Tensor? x, allowed: Tensor, because the input 'x' is required",
    "Tensor x=None, int[2] by=1, float eps=0": "column 18: 'x' has a default, allowed: Tensor? with the default None",
    "Tensor x, int by, float eps":
        "column 21: int by, allowed: int[] or SymInt[] or int[2], because the attribute 'by' is of kind ints",
    "Tensor x, int[3] by, float eps": "column 21: int[3] by, and the default of the attribute 'by' has 2 items: (1, 1)",
    "Tensor x, int[2] by, int eps":
        "column 32: int eps, allowed: float or Scalar, because the attribute 'eps' is of kind float",
    "Tensor x, int[2] by=2, float eps=1e-05":
        "column 28: 'by' has the default (2, 2), allowed: (1, 1), the default of the attribute 'by'; or give that "
        "one none",
    "Tensor x, int[2] by=1, float eps=None": "column 40: the default of 'eps': found None, allowed: a value",
    "Tensor x, int[2] by, float eps, Tensor x": "column 50: 'x' a second time",
    "Tensor x, int[2] by, float eps, ...":
        "column 43: any number of arguments of any kind, allowed: arguments with names",
    "Tensor(a) x, int[2] by, float eps": "column 11: Tensor(a) is a view, and ONNX has none",
    "my::shift(Tensor x, int[2] by, float eps) -> (Tensor, Tensor)":
        "column 46: 2 results, allowed: 1, one for each output",
    "my::shift(Tensor x, int[2] by, float eps) -> int": "column 46: int, allowed: Tensor for each output",
    "Tensor x, int[2] by float eps": "column 31: found 'float', expected",
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mismatch_is_one_message_with_the_position(text: str) -> None:
    schema = text if "->" in text else f"my::shift({text}) -> Tensor"
    (message,) = found(with_schema(schema))
    assert message.startswith("torch.schema: ")
    assert f"\n  {schema}\n" in message
    assert f"^ {MISTAKES[text]}" in message


def test_what_the_schema_lacks_is_named() -> None:
    assert found(SPEC) == [
        "inputs[1]: torch.schema has no argument 'mask'. Give it the argument's name as torch_name, or add the argument"
    ]
    short = with_schema("my::shift(Tensor x, float eps=1e-05) -> Tensor")
    assert found(short) == [
        "attributes[0]: torch.schema has no argument 'by'. Give it the argument's name as torch_name, "
        "or add the argument"
    ]


def test_what_does_not_go_with_a_written_schema() -> None:
    by = Attribute(name="by", kind="floats")
    floats = with_schema("my::shift(Tensor x, float[2] by) -> Tensor", attributes=(by,))
    assert "float[2] by, allowed: float[], whose length the kernel checks" in found(floats)[0]
    named = with_schema(
        "my::shift(Tensor x, int[2] by, *, float from) -> Tensor",
        attributes=(ONE.attributes[0], Attribute(name="eps", kind="float", torch_name="from")),
    )
    assert "'from' names something else in Python, allowed before '*'" in found(named)[0]
    later = replace(
        ONE,
        onnx=OnnxOp(domain="my.domain", op_type="Shift", versions=(1, 2)),
        attributes=(ONE.attributes[0], replace(ONE.attributes[1], since=2)),
    )
    assert found(later)[0].startswith("torch.schema: found with 'eps', which has a `since`; allowed: one of both")
    without = replace(ONE, torch=TorchOp(name="my::shift"), inputs=(replace(ONE.inputs[0], torch_name="self"),))
    assert found(without) == [
        "inputs[0].torch_name: found 'self', allowed with torch.schema: a derived schema has the input's own name"
    ]
