"""A written schema whose operator writes its arguments, and outputs in the memory of an input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.declaration.validation.operator import handwritten_files
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import callers_name, callers_schema, is_mutable, torch_schema
from opmatrix.spec import FromKernel, OpSpec, SameAs, TorchOp
from tests.declaration.schemas import SPEC, found
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
