"""A written schema whose operator writes its arguments, and outputs in the memory of an input. Arguments of a written
schema that the library takes in another type or not at all: Scalar, Generator, dtype.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.declaration.validation.operator import handwritten_files
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import (
    callers_name,
    callers_schema,
    is_composed,
    is_mutable,
    torch_qualified,
    torch_schema,
)
from opmatrix.spec import FromKernel, OpSpec, SameAs, TorchOp
from tests.declaration.schemas import ONE, ROWS, SPEC, found
from tests.support.projects import ROOT

IN_PLACE = load_operator(Paths(ROOT / "tests/projects/in_place"), "axpy").spec
OUT = load_operator(Paths(ROOT / "tests/projects/in_place"), "split_sign").spec


Z = IN_PLACE.outputs[0]
OUTER = (replace(Z, writes=None, may_inplace=None),)


def written(text: str, *, of: OpSpec = IN_PLACE, **changed: Any) -> OpSpec:
    assert of.torch is not None
    return replace(of, torch=replace(of.torch, schema=text), **changed)


def test_an_operator_that_writes_arguments_has_a_functional_one() -> None:
    assert torch_schema(IN_PLACE) == "cst::axpy__functional(Tensor x, Tensor y, float alpha=1.0) -> Tensor"
    assert (callers_name(IN_PLACE), callers_name(OUT)) == ("cst::axpy_", "_cst::split.out")
    assert callers_schema(IN_PLACE) == "cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1) -> ()"
    functional = "_cst::split_out_functional(Tensor from, Tensor calls, int write=1) -> (Tensor, Tensor, Tensor)"
    assert torch_schema(OUT) == functional
    keyword_only = written("cst::axpy_(Tensor(a!) x, *, Tensor y, float alpha=1) -> Tensor(a!)")
    assert found(keyword_only) == []
    assert torch_schema(keyword_only) == "cst::axpy__functional(Tensor x, *, Tensor y, float alpha=1.0) -> Tensor"
    assert (is_mutable(SPEC), callers_schema(SPEC)) == (False, torch_schema(SPEC))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (written("cst::axpy_(Tensor(a) x, Tensor y, float alpha=1) -> ()"), "Tensor(a) is a view, and ONNX has none"),
        (written("cst::axpy_(Tensor x, Tensor y, float alpha=1) -> Tensor"), "Tensor(a!), because the output 'z'"),
        (written("cst::axpy_(Tensor(a!) x, Tensor(b!) y, float alpha=1) -> ()"),
         "column 26: Tensor(b!) y is written, and no output says with what; give one writes='y'"),
        (written("cst::axpy_(Tensor(a!) x, Tensor(a!) y, float alpha=1) -> ()"),
         "column 26: (a!) a second time, allowed: a letter for each argument"),
        (written("cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1) -> Tensor"),
         "1 results, allowed: 0, one for each output that is written into no argument"),
        (written("cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1) -> Tensor(b!)"),
         "Tensor(b!) is not an argument, allowed: Tensor(a!), which is x"),
        (written("cst::axpy_(Tensor! x, Tensor y, float alpha=1) -> Tensor!"),
         "Tensor! names no argument, allowed: Tensor(a!), the same at the argument that is returned"),
        (written("cst::axpy_(Tensor! x, Tensor! y, float alpha=1) -> ()"),
         "Tensor! y is written, and no output says with what"),
        (written("cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1) -> (Tensor(a!), Tensor(a!))"),
         "(a!) is returned twice, allowed: once"),
        (written("cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1, *, Tensor(b!) out) -> ()"),
         "'out' is written, allowed: an input that an output `writes`, or, for out=, the name of an output"),
        (written("cst::axpy_(Tensor x, Tensor y, float alpha=1, *, Tensor(a!) z=None) -> ()", outputs=OUTER),
         "'z' has a default, allowed: Tensor(a!) without a default"),
        (written("cst::axpy_(Tensor x, Tensor!? y, float alpha=1) -> Tensor", outputs=OUTER),
         "column 22: Tensor!? is written and may be absent, allowed: Tensor!. For calls without it"),
        (written("cst::axpy_(Tensor x, Tensor(a!)[] y, float alpha=1) -> Tensor", outputs=OUTER),
         "column 22: Tensor(a!)[] is written, allowed: an argument for each tensor, such as Tensor(a!)"),
        (
            written(
                "cst::axpy_(Tensor(a!)? x, Tensor y, float alpha=1) -> ()",
                inputs=(IN_PLACE.inputs[1], replace(IN_PLACE.inputs[0], optional=True)),
            ),
            "outputs[0].writes: 'x' is optional, allowed: a required input. For calls without it, declare another",
        ),
        (written("cst::axpy_(Tensor x, Tensor y, float alpha=1) -> Tensor?", outputs=OUTER),
         ": Tensor? is a result that may be absent, allowed: Tensor, which is empty where there is none: "
         'Output(optional="flag"), with an attribute flag of kind bool'),
        (replace(IN_PLACE, torch=TorchOp(name="cst::axpy_")), "found 'x', allowed with torch.schema"),
        (replace(IN_PLACE, torch=None), "outputs[0].writes: found 'x', allowed with torch.schema"),
        (replace(IN_PLACE, outputs=(replace(Z, writes="w"),)), "outputs[0].writes: found 'w', allowed: x, y"),
        (replace(IN_PLACE, outputs=(replace(Z, type="float32"),)), "'x' is of type T, the output of type float32"),
        (replace(IN_PLACE, outputs=(replace(Z, shape=SameAs(input="y")),)), "allowed with shape=SameAs(input='x')"),
        (replace(IN_PLACE, outputs=(Z, replace(Z, name="again"))), "two outputs write 'x', allowed: one"),
        (replace(IN_PLACE, outputs=(replace(Z, optional=True),)), "found 'x' and optional=True, allowed: one of both"),
        (replace(IN_PLACE, torch=replace(IN_PLACE.torch, python=True)),  # type: ignore[type-var]  # it has a torch operator
         "allowed without torch.python: opmatrix defines the operator"),
        (replace(OUT, outputs=(*OUT.outputs[:2], replace(OUT.outputs[2], shape=FromKernel(rank=2)))),
         "only the kernel knows the size of 'positive'"),
        (replace(OUT, outputs=(*OUT.outputs[:2], replace(OUT.outputs[2], optional=True))),
         "'positive' is optional, allowed: a required output; torch always writes the argument"),
        # The memory of an input.
        (replace(IN_PLACE, outputs=(replace(Z, may_inplace="w"),)), "outputs[0].may_inplace: found 'w', allowed: x, y"),
        (replace(IN_PLACE, outputs=(replace(Z, may_inplace="x", type="float32"),)), "allowed with type='T' and shape="),
        (replace(IN_PLACE, outputs=(replace(Z, may_inplace="y"),)), "shape=SameAs(input='y'): the memory of the input"),
        (replace(IN_PLACE, outputs=(replace(Z, writes=None, may_inplace="x", optional=True),)),
         "found 'x' and optional=True, allowed: one of both"),
        (replace(IN_PLACE, outputs=(replace(Z, may_inplace="x"), replace(Z, name="b", writes=None, may_inplace="x"))),
         "outputs: two outputs may have the memory of 'x', allowed: one"),
        (replace(IN_PLACE, types={"T": ("float32", "string")}, outputs=(replace(Z, may_inplace="x"),)),
         "found 'x', of strings, allowed: numbers"),
        (replace(IN_PLACE, types={"T": ("float32", "int4")}, outputs=(replace(Z, may_inplace="x"),)),
         "found 'x', which may be of int4 or uint4, allowed: dtypes that a kernel has as ONNX Runtime has them"),
        (replace(IN_PLACE, runtime="contrib", outputs=(replace(Z, may_inplace="x"),)),
         "found 'x', allowed for an operator with a kernel of its own"),
    ],
)  # fmt: skip
def test_a_written_argument_and_the_memory_of_an_input_must_fit_an_output(spec: OpSpec, message: str) -> None:
    assert any(message in one for one in found(spec)), found(spec)


def test_a_letter_twice_is_one_mistake() -> None:
    outputs = (Z, replace(Z, name="w", writes="y", shape=SameAs(input="y"), may_inplace=None))
    (message,) = found(written("cst::axpy_(Tensor(a!) x, Tensor(a!) y, float alpha=1) -> ()", outputs=outputs))
    assert message.count("^ column") == 1 and "(a!) a second time, allowed: a letter for each argument" in message


def test_an_output_may_have_the_memory_of_an_input() -> None:
    spec = replace(IN_PLACE, outputs=(replace(Z, may_inplace="x"),))
    assert found(spec) == []
    (own,) = handwritten_files(spec, {"kernel.h", "ort.cc"})
    assert (own.field, own.text) == (
        "ort.cc",
        "found with may_inplace='x' of the output 'z', allowed: one of both; it registers the operator itself, "
        "with or without GetMayInplace",
    )


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


def test_a_scalar_that_is_no_attribute_is_a_constant_and_that_of_an_operator_in_python_is_refused() -> None:
    assert is_composed(DAMPED) and not is_composed(ROWS)
    assert "Scalar? scalar=None" in torch_schema(ROWS)
    (message,) = found(replace(DAMPED, torch=replace(DAMPED.torch, python=True)))  # type: ignore[type-var]  # it has a torch operator
    assert "column 23: Scalar factor, allowed without torch.python: opmatrix defines" in message
    assert "column 43: Scalar? offset" in message


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
    for value in ("int4", None):
        (message, *_) = with_fixed(", ScalarType dtype", dtype=value)
        assert message.startswith(f"torch.fixed['dtype']: found {value!r}, allowed: float32, ")
    assert with_fixed(", Device device", device="cuda") == ["torch.fixed['device']: found 'cuda', allowed: cpu"]
    assert with_fixed(", Layout? layout", layout="sparse_coo")[0].endswith("allowed: strided, None")
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
    in_python = replace(FIXED, torch=replace(FIXED.torch, python=True))  # type: ignore[type-var]  # it has a torch operator
    text = "torch.fixed: allowed without torch.python: opmatrix defines the operator, with the one that it calls"
    assert text in found(in_python)


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
