"""Arguments of a written schema that the library takes in another type or not at all: Scalar, Generator, dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import callers_name, callers_schema, is_composed, torch_qualified, torch_schema
from opmatrix.spec import OpSpec, TorchOp
from tests.declaration.schemas import ONE, ROWS, found
from tests.support.projects import ROOT

DAMPED = load_operator(Paths(ROOT / "tests/projects/scalars"), "damped").spec
SHIFT = load_operator(Paths(ROOT / "tests/projects/scalars"), "shift").spec


def test_a_scalar_is_a_float_or_an_int_in_the_library() -> None:
    assert torch_schema(DAMPED) == "sca::damped_typed(Tensor x, float factor=1.0, *, float? offset=None) -> Tensor"
    assert (torch_qualified(DAMPED), callers_name(DAMPED)) == ("sca::damped_typed", "sca::damped")
    assert callers_schema(DAMPED) == "sca::damped(Tensor x, Scalar factor=1, *, Scalar? offset=None) -> Tensor"
    both = "sca::shift__Scalar_functional(Tensor self, int other, *, int alpha=1) -> Tensor"
    assert (torch_schema(SHIFT), callers_name(SHIFT)) == (both, "sca::shift_.Scalar")
    assert python_modules.function(DAMPED)["typed"] == [
        "x: torch.Tensor", "factor: float = 1.0", "*", "offset: float | None = None",
    ]  # fmt: skip
    overload = replace(DAMPED, torch=TorchOp(name="sca::damped", schema="sca::damped.by(Tensor x, Scalar factor, "
                       "Scalar? offset) -> Tensor"))  # fmt: skip
    assert torch_qualified(overload) == "sca::damped_by_typed"


def test_a_scalar_that_is_no_attribute_is_a_constant() -> None:
    assert is_composed(DAMPED) and not is_composed(ROWS)
    assert "Scalar? scalar=None" in torch_schema(ROWS)


def test_a_scalar_of_an_operator_in_python_is_refused() -> None:
    (message,) = found(replace(DAMPED, torch=replace(DAMPED.torch, python=True)))  # type: ignore[type-var]  # it has a torch operator
    for text in (
        "column 23: Scalar factor, allowed without torch.python: opmatrix defines",
        "column 43: Scalar? offset",
    ):
        assert text in message


FIXED = load_operator(Paths(ROOT / "tests/projects/scalars"), "dequantized").spec


def with_fixed(arguments: str, **fixed: str | None) -> list[str]:
    schema = f"my::shift(Tensor x, int[2] by, float eps{arguments}) -> Tensor"
    return found(replace(ONE, torch=TorchOp(name="my::shift", schema=schema, fixed=fixed)))


def test_an_argument_with_one_legal_value_is_not_in_the_library() -> None:
    assert torch_schema(FIXED) == (
        "sca::dequantized_typed(Tensor x, float scale, int zero_point=0, *, Layout? kept=None) -> Tensor"
    )
    assert callers_schema(FIXED) == (
        "sca::dequantized(Tensor x, ScalarType dtype, float scale, Layout layout, int zero_point=0, *, Device device, "
        "ScalarType? accumulated, Layout? kept=None) -> Tensor"
    )
    assert python_modules.function(FIXED)["typed"] == [
        "x: torch.Tensor", "dtype: torch.dtype", "scale: float", "layout: torch.layout", "zero_point: int = 0", "*",
        "device: torch.device | str", "accumulated: object", "kept: object = None",
    ]  # fmt: skip
    assert with_fixed(", Device? device, Layout? layout", device="cpu", layout=None) == []
    fake = python_modules.render(replace(ONE, torch=TorchOp(name="my::shift", fixed={"d": "float8_e5m2", "e": "cpu"},
        schema="my::shift(Tensor x, int[2] by, float eps, ScalarType d, Device? e) -> Tensor")))["fake.py"]  # fmt: skip
    assert 'if d != getattr(torch, "float8_e5m2", None):' in fake  # torch 1.13 has none
    assert 'if e is None or torch.device(e).type != "cpu":' in fake


def test_fixed_values_must_fit_the_schema() -> None:
    assert with_fixed("", dtype="float32") == ["torch.fixed['dtype']: torch.schema has no argument 'dtype'"]
    assert "did you mean 'dtype'?" in with_fixed(", ScalarType dtype", dtyp="float32", dtype="float32")[0]
    (message,) = with_fixed(", ScalarType dtype", dtype="float33")
    assert message.startswith("torch.fixed['dtype']: found 'float33', allowed: float32, float16, ")
    assert message.endswith(", uint64, bool; did you mean 'float32'?")
    assert with_fixed(", ScalarType dtype", dtype="int4")[0].startswith(
        "torch.fixed['dtype']: found 'int4', allowed: float32, "
    )
    assert with_fixed(", Device device", device="cuda") == ["torch.fixed['device']: found 'cuda', allowed: cpu"]
    assert with_fixed(", Layout? layout", layout="sparse_coo")[0].endswith("allowed: strided, None")
    assert with_fixed(", ScalarType dtype", dtype=None)[0].startswith(
        "torch.fixed['dtype']: found None, allowed: float32"
    )
    kinds = "ScalarType, Layout, Device, or one of them with ?, without a default"
    assert with_fixed("", eps="float32") == [
        f"torch.fixed['eps']: it is an input, an attribute or an output, allowed: another argument, {kinds}"
    ]
    for argument in ("ScalarType? dtype=None", "ScalarType[] dtype", "int dtype=3"):
        (message,) = with_fixed(f", {argument}", dtype="float32")
        assert f"{argument.split('=')[0]}, which torch.fixed has, allowed: {kinds}" in message
    derived = replace(ONE, torch=TorchOp(name="my::shift", fixed={"dtype": "float32"}))
    assert found(derived) == [
        "torch.fixed: found {'dtype': 'float32'}, allowed with torch.schema, which has the arguments; a derived schema "
        "has inputs and attributes alone"
    ]
    assert (
        "torch.fixed: allowed without torch.python: opmatrix defines the operator, with the one that it calls"
        in found(
            replace(FIXED, torch=replace(FIXED.torch, python=True))  # type: ignore[type-var]  # it has a torch operator
        )
    )


DROPOUT = load_operator(Paths(ROOT / "tests/projects/seeds"), "dropout").spec
JITTER = load_operator(Paths(ROOT / "tests/projects/seeds"), "jitter").spec
NUMBERS = load_operator(Paths(ROOT / "tests/projects/seeds"), "numbers").spec


def test_a_generator_is_an_int_in_the_library() -> None:
    assert torch_schema(DROPOUT) == "sown::dropout_typed(Tensor x, float p=0.5, int generator=0) -> Tensor"
    assert torch_schema(NUMBERS) == "sown::numbers_like_typed(Tensor x, *, int generator=42) -> Tensor"
    both = "sown::jitter__functional(Tensor self, float amount=1.0, *, int? generator=None) -> Tensor"
    assert torch_schema(JITTER) == both
    for spec in (DROPOUT, NUMBERS, JITTER):
        assert spec.torch is not None and callers_schema(spec) == spec.torch.schema
        assert python_modules.function(spec)["typed"][-1] == "generator: torch.Generator | None = None"
    required = _seeded("sown::dropout(Tensor x, *, float p=0.5, Generator generator) -> Tensor")
    assert torch_schema(required) == "sown::dropout_typed(Tensor x, *, float p=0.5, int generator) -> Tensor"
    assert python_modules.function(required)["typed"][-1] == "generator: torch.Generator"


def _seeded(schema: str = "", **changed: Any) -> OpSpec:
    """Return dropout with another schema, or another seed."""
    assert DROPOUT.torch is not None
    torch = replace(DROPOUT.torch, schema=schema) if schema else DROPOUT.torch
    return replace(DROPOUT, torch=torch, attributes=(replace(DROPOUT.attributes[0], **changed), DROPOUT.attributes[1]))


NO_SEED = "Generator? generator, allowed: minimum=0 or another int in the attribute 'seed', with or without a maximum"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_seeded(minimum=0.5), NO_SEED),
        (_seeded(minimum=3, maximum=3), NO_SEED),
        (_seeded(minimum=-(2**64)), NO_SEED),
        (_seeded(maximum=float("inf")), NO_SEED),
        (_seeded(minimum=None, allowed=(1, 2)), NO_SEED),
        (_seeded(kind="float", minimum=0.0), "Generator? generator, allowed: the attribute 'seed' of kind int"),
        (_seeded("sown::dropout(Tensor x, float p=0.5, Generator? generator=7) -> Tensor"), "has the default 7"),
        (_seeded("sown::dropout(Tensor x, Generator[] generator, float p=0.5) -> Tensor"), "Generator[] generator"),
        (replace(_seeded(), torch=replace(DROPOUT.torch, python=True)), "allowed without torch.python"),  # type: ignore[type-var]  # it has a torch operator
    ],
)  # fmt: skip
def test_a_generator_that_gives_no_seed_is_refused(spec: OpSpec, message: str) -> None:
    messages = found(spec)
    assert any(message in one for one in messages), messages
