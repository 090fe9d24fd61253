"""A torch schema that a declaration contains: what follows from it, and each mismatch with the position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opmatrix.codegen import cpp_bindings, python_modules
from opmatrix.declaration.declared_sizes import list_lengths
from opmatrix.declaration.load import load_operator
from opmatrix.declaration.torch_signature import (
    callers_name,
    callers_schema,
    constants,
    is_composed,
    is_mutable,
    stable_abi_since,
    torch_arguments,
    torch_qualified,
    torch_schema,
)
from opmatrix.declaration.validation.operator import declaration, handwritten_files
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, FromKernel, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp
from tests.support.projects import ROOT

WRITTEN = load_operator(Paths(ROOT / "tests/projects/schemas"), "written").spec
ROWS = load_operator(Paths(ROOT / "tests/projects/schemas"), "rows").spec
SPEC = OpSpec(
    name="shifted",
    summary="Shift.",
    torch=TorchOp(name="my::shift", schema="my::shift(Tensor x, int[2] by=1, *, float eps=1e-05) -> Tensor"),
    onnx=OnnxOp(domain="my.domain", op_type="Shift"),
    inputs=(
        Input(name="x", type="float32"),
        Input(name="mask", type="float32", optional=True),
    ),
    attributes=(
        Attribute(name="by", kind="ints", default=(1, 1)),
        Attribute(name="eps", kind="float", default=1e-5),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=0.0, atol=0.0)}},
)
ONE = replace(SPEC, inputs=SPEC.inputs[:1])


def found(spec: OpSpec) -> list[str]:
    return [f"{mistake.field}: {mistake.text}" for mistake in declaration(spec, spec.name)]


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
    text = cpp_bindings.render(ROWS)["torch.cc"]
    for line in (
        'torch::Input x("rows", "x", stack[2]);',
        'torch::Input weight("rows", "weight", stack[1]);',
        'torch::OptionalInput other("rows", "other", stack[3]);',
        "const bool is_signed = torch::to_bool(stack[4]);",
        "const double factor = torch::to_double(stack[0]);",
        '    "pool.rows",\n    kSchema,\n    pool,\n',
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


MISTAKES = {
    "my::shift(Tensor x, int[2] by=1, *, float eps=1e-05, float more) -> Tensor": (
        "column 60: no input and no attribute is named 'more', or has it as torch_name"
    ),
    "my::shift(Tensor x, int[2] by, float epz) -> Tensor": (
        "column 38: no input and no attribute is named 'epz'; did you mean 'eps'?, or has it as torch_name"
    ),
    "my::shift(Tensor x, int[2] by, float eps, Tensor? out=None) -> Tensor": (
        "column 51: no input and no attribute is named 'out', or has it as torch_name"
    ),
    "my::shift(Tensor x, int[2] by, float eps, ScalarType dtype=float) -> Tensor": (
        "column 43: ScalarType dtype, which is neither an input nor an attribute, allowed: a type with ? and "
        "the default None, or bool, int, SymInt, float with a number as the default; or ScalarType, Layout, Device, or "
        "one of them with ?, without a default"
    ),
    "my::shift(Tensor x, int[2] by, float eps, ScalarType dtype) -> Tensor": (
        "column 43: ScalarType dtype without a default, allowed with its one legal value in torch.fixed, such as "
        "{'dtype': 'float32'}"
    ),
    "my::shift(Tensor x, int[2] by, float eps, Device? device) -> Tensor": (
        "column 43: Device? device without a default, allowed with its one legal value in torch.fixed, such as "
        "{'device': None}"
    ),
    "my::shift(Tensor x, int[2] by, float eps, ScalarType[] dtypes) -> Tensor": (
        "column 56: no input and no attribute is named 'dtypes'"
    ),
    "my::shift(Tensor x, int[2] by, float eps, int y=0) -> Tensor": (
        "column 47: 'y' names something else in generated code, allowed: a name that no keyword, input, attribute or "
        "output has"
    ),
    "my::shift(Tensor x, Scalar by, float eps) -> Tensor": (
        "column 21: Scalar by, allowed: int[] or SymInt[] or int[2], because the attribute 'by' is of kind ints"
    ),
    "my::shift(Tensor x, int[2] by, Scalar? eps) -> Tensor": (
        "column 32: Scalar? eps, allowed: float or Scalar, because the attribute 'eps' is of kind float"
    ),
    "my::shift(Tensor x, int[2] by, Scalar[] eps) -> Tensor": (
        "column 32: Scalar[] eps, allowed: float or Scalar, because the attribute 'eps' is of kind float"
    ),
    "my::shift(Tensor x, int[2] by, Scalar eps=2) -> Tensor": (
        "column 39: 'eps' has the default 2, allowed: 1e-05, the default of the attribute 'eps'; or give that one none"
    ),
    "other::shift(Tensor x, int[2] by, float eps) -> Tensor": (
        "column 1: the schema of other::shift, allowed: my::shift, which is torch.name"
    ),
    "my::shift(Tensor? x, int[2] by, float eps) -> Tensor": (
        "column 11: Tensor? x, allowed: Tensor, because the input 'x' is required"
    ),
    "my::shift(Tensor x=None, int[2] by=1, float eps=0) -> Tensor": (
        "column 18: 'x' has a default, allowed: Tensor? with the default None"
    ),
    "my::shift(Tensor x, int by, float eps) -> Tensor": (
        "column 21: int by, allowed: int[] or SymInt[] or int[2], because the attribute 'by' is of kind ints"
    ),
    "my::shift(Tensor x, int[3] by, float eps) -> Tensor": (
        "column 21: int[3] by, and the default of the attribute 'by' has 2 items: (1, 1)"
    ),
    "my::shift(Tensor x, int[2] by, int eps) -> Tensor": (
        "column 32: int eps, allowed: float or Scalar, because the attribute 'eps' is of kind float"
    ),
    "my::shift(Tensor x, int[2] by=2, float eps=1e-05) -> Tensor": (
        "column 28: 'by' has the default (2, 2), allowed: (1, 1), the default of the attribute 'by'; "
        "or give that one none"
    ),
    "my::shift(Tensor x, int[2] by=1, float eps=None) -> Tensor": (
        "column 40: the default of 'eps': found None, allowed: a value"
    ),
    "my::shift(Tensor x, int[2] by, float eps, Tensor x) -> Tensor": "column 50: 'x' a second time",
    "my::shift(Tensor x, int[2] by, float eps, ...) -> Tensor": (
        "column 43: any number of arguments of any kind, allowed: arguments with names"
    ),
    "my::shift(Tensor(a) x, int[2] by, float eps) -> Tensor": "column 11: Tensor(a) is a view, and ONNX has none",
    "my::shift(Tensor x, int[2] by, float eps) -> (Tensor, Tensor)": (
        "column 46: 2 results, allowed: 1, one for each output"
    ),
    "my::shift(Tensor x, int[2] by, float eps) -> int": "column 46: int, allowed: Tensor for each output",
    "my::shift(Tensor x, int[2] by float eps) -> Tensor": "column 31: found 'float', expected",
}


@pytest.mark.parametrize("schema", MISTAKES)
def test_a_mismatch_is_one_message_with_the_position(schema: str) -> None:
    (message,) = found(with_schema(schema))
    assert message.startswith("torch.schema: ")
    assert f"\n  {schema}\n" in message
    assert f"^ {MISTAKES[schema]}" in message


def test_several_mismatches_are_one_message() -> None:
    (message,) = found(with_schema("my::shift(Tensor[] x, int[2] by, int eps) -> Tensor"))
    assert message.count("^ column") == 2


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
    floats = with_schema(
        "my::shift(Tensor x, float[2] by) -> Tensor", attributes=(Attribute(name="by", kind="floats"),)
    )
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
        (_seeded(minimum=None), NO_SEED),
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
        (
            written("cst::axpy_(Tensor(a!) x, Tensor(b!) y, float alpha=1) -> ()"),
            "column 26: Tensor(b!) y is written, and no output says with what; give one writes='y'",
        ),
        (
            written("cst::axpy_(Tensor(a!) x, Tensor(a!) y, float alpha=1) -> ()"),
            "column 26: (a!) a second time, allowed: a letter for each argument",
        ),
        (
            written("cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1) -> Tensor"),
            "1 results, allowed: 0, one for each output that is written into no argument",
        ),
        (
            written("cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1) -> Tensor(b!)"),
            "Tensor(b!) is not an argument, allowed: Tensor(a!), which is x",
        ),
        (
            written("cst::axpy_(Tensor! x, Tensor y, float alpha=1) -> Tensor!"),
            "Tensor! names no argument, allowed: Tensor(a!), the same at the argument that is returned",
        ),
        (
            written("cst::axpy_(Tensor! x, Tensor! y, float alpha=1) -> ()"),
            "Tensor! y is written, and no output says with what",
        ),
        (
            written("cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1) -> (Tensor(a!), Tensor(a!))"),
            "(a!) is returned twice, allowed: once",
        ),
        (
            written("cst::axpy_(Tensor(a!) x, Tensor y, float alpha=1, *, Tensor(b!) out) -> ()"),
            "'out' is written, allowed: an input that an output `writes`, or, for out=, the name of an output",
        ),
        (
            written(
                "cst::axpy_(Tensor x, Tensor y, float alpha=1, *, Tensor(a!)? z=None) -> ()",
                outputs=OUTER,
            ),
            "column 50: Tensor(a!)? is written and may be absent, allowed: Tensor(a!). For calls without it, declare "
            "another overload, whose schema does not have the argument",
        ),
        (
            written("cst::axpy_(Tensor x, Tensor y, float alpha=1, *, Tensor(a!) z=None) -> ()", outputs=OUTER),
            "'z' has a default, allowed: Tensor(a!) without a default",
        ),
        (
            written("cst::axpy_(Tensor x, Tensor!? y, float alpha=1) -> Tensor", outputs=OUTER),
            "column 22: Tensor!? is written and may be absent, allowed: Tensor!. For calls without it",
        ),
        (
            written("cst::axpy_(Tensor x, Tensor(a!)[] y, float alpha=1) -> Tensor", outputs=OUTER),
            "column 22: Tensor(a!)[] is written, allowed: an argument for each tensor, such as Tensor(a!)",
        ),
        (
            written(
                "cst::axpy_(Tensor(a!)? x, Tensor y, float alpha=1) -> ()",
                inputs=(IN_PLACE.inputs[1], replace(IN_PLACE.inputs[0], optional=True)),
            ),
            "outputs[0].writes: 'x' is optional, allowed: a required input. For calls without it, declare another",
        ),
        (
            written("cst::axpy_(Tensor x, Tensor y, float alpha=1) -> Tensor?", outputs=OUTER),
            ": Tensor? is a result that may be absent, allowed: Tensor, which is empty where there is none: "
            'Output(optional="flag"), with an attribute flag of kind bool',
        ),
        (replace(IN_PLACE, torch=TorchOp(name="cst::axpy_")), "found 'x', allowed with torch.schema"),
        (replace(IN_PLACE, torch=None), "outputs[0].writes: found 'x', allowed with torch.schema"),
        (replace(IN_PLACE, outputs=(replace(Z, writes="w"),)), "outputs[0].writes: found 'w', allowed: x, y"),
        (replace(IN_PLACE, outputs=(replace(Z, type="float32"),)), "'x' is of type T, the output of type float32"),
        (replace(IN_PLACE, outputs=(replace(Z, shape=SameAs(input="y")),)), "allowed with shape=SameAs(input='x')"),
        (replace(IN_PLACE, outputs=(Z, replace(Z, name="again"))), "two outputs write 'x', allowed: one"),
        (replace(IN_PLACE, outputs=(replace(Z, optional=True),)), "found 'x' and optional=True, allowed: one of both"),
        (
            replace(IN_PLACE, torch=replace(IN_PLACE.torch, python=True)),  # type: ignore[type-var]  # it has a torch operator
            "allowed without torch.python: opmatrix defines the operator",
        ),
        (
            replace(OUT, outputs=(*OUT.outputs[:2], replace(OUT.outputs[2], shape=FromKernel(rank=2)))),
            "only the kernel knows the size of 'positive'",
        ),
        (
            replace(OUT, outputs=(*OUT.outputs[:2], replace(OUT.outputs[2], optional=True))),
            "'positive' is optional, allowed: a required output; torch always writes the argument",
        ),
    ],
)  # fmt: skip
def test_a_written_argument_must_fit_an_output(spec: OpSpec, message: str) -> None:
    assert any(message in one for one in found(spec)), found(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(IN_PLACE, outputs=(replace(Z, may_inplace="w"),)), "outputs[0].may_inplace: found 'w', allowed: x, y"),
        (replace(IN_PLACE, outputs=(replace(Z, may_inplace="x", type="float32"),)), "allowed with type='T' and shape="),
        (replace(IN_PLACE, outputs=(replace(Z, may_inplace="y"),)), "shape=SameAs(input='y'): the memory of the input"),
        (
            replace(IN_PLACE, outputs=(replace(Z, writes=None, may_inplace="x", optional=True),)),
            "found 'x' and optional=True, allowed: one of both",
        ),
        (
            replace(
                IN_PLACE, outputs=(replace(Z, may_inplace="x"), replace(Z, name="b", writes=None, may_inplace="x"))
            ),
            "outputs: two outputs may have the memory of 'x', allowed: one",
        ),
        (
            replace(IN_PLACE, types={"T": ("float32", "string")}, outputs=(replace(Z, may_inplace="x"),)),
            "found 'x', of strings, allowed: numbers",
        ),
        (
            replace(IN_PLACE, types={"T": ("float32", "int4")}, outputs=(replace(Z, may_inplace="x"),)),
            "found 'x', which may be of int4 or uint4, allowed: dtypes that a kernel has as ONNX Runtime has them",
        ),
        (
            replace(IN_PLACE, runtime="contrib", outputs=(replace(Z, may_inplace="x"),)),
            "found 'x', allowed for an operator with a kernel of its own",
        ),
    ],
)
def test_the_memory_of_an_input_must_fit_an_output(spec: OpSpec, message: str) -> None:
    assert any(message in one for one in found(spec)), found(spec)


def test_a_letter_twice_is_one_mistake() -> None:
    (message,) = found(
        written(
            "cst::axpy_(Tensor(a!) x, Tensor(a!) y, float alpha=1) -> ()",
            outputs=(Z, replace(Z, name="w", writes="y", shape=SameAs(input="y"), may_inplace=None)),
        )
    )
    assert message.count("^ column") == 1 and "(a!) a second time, allowed: a letter for each argument" in message


def test_an_output_may_have_the_memory_of_an_input() -> None:
    spec = replace(IN_PLACE, outputs=(replace(Z, may_inplace="x"),))
    assert found(spec) == []
    own = [*handwritten_files(spec, {"kernel.h", "ort.cc"})]
    assert [(m.field, m.text) for m in own] == [
        (
            "ort.cc",
            "found with may_inplace='x' of the output 'z', allowed: one of both; it registers the operator itself, "
            "with or without GetMayInplace",
        )
    ]
