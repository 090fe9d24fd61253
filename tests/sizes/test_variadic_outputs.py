"""Variadic outputs: what says how many tensors they have, and each mistake with its message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from opmatrix.codegen import bindings, python_modules
from opmatrix.declaration.validation import cases
from opmatrix.declaration.validation.operator import declaration
from opmatrix.search import shapes as output_sizes
from opmatrix.signature.signature import stable_abi_since, torch_schema
from opmatrix.sizes.variadic import flat, nested, of_model, shapes_by_input, with_count
from opmatrix.spec import Attribute, Case, Dims, FromKernel, Model, OpSpec, Output, Override, Random, SameAs, TorchOp
from tests.support.specs import declare

PARTS = Output(name="parts", type="T", shape=SameAs(input="x"), variadic="count")
SPEC = declare(
    "several(x: T, xs: T*) -> y: T like x",
    Attribute(name="count", kind="int", minimum=1),
    Attribute(name="level", kind="int"),
    Attribute(name="sizes", kind="ints"),
    PARTS,
    torch="my::several",
    onnx="my.domain::Several",
    summary="Several outputs.",
    types={"T": ("float32",)},
)


def of_outputs(**changed: Any) -> OpSpec:
    return replace(SPEC, outputs=(SPEC.outputs[0], replace(PARTS, **changed)))


def model(count: int = 2, sizes: tuple[int, ...] = (1, 2, 3), tensors: int = 1) -> Model:
    xs = (Random(shape=(5,)),) * tensors
    return Model(
        name="one",
        types={"T": "float32"},
        attributes={"count": count, "level": 0, "sizes": sizes},
        cases=(Case(name="one", inputs={"x": Random(shape=(2,)), "xs": xs}),),
    )


@pytest.mark.parametrize(
    ("counter", "expected"), [("count", 2), ("sizes", 3), ("xs", 4)], ids=["int", "ints", "variadic input"]
)
def test_a_call_has_an_output_for_each_tensor(counter: str, expected: int) -> None:
    spec = of_outputs(variadic=counter)
    assert [*declaration(spec, "several")] == []
    called = of_model(spec, model(tensors=4))
    assert [o.name for o in called.outputs] == ["y", *(f"parts_{n}" for n in range(expected))]
    assert not any(o.variadic for o in called.outputs)
    assert of_model(called, model()) is called


def test_each_tensor_has_the_shape_of_its_own() -> None:
    spec = of_outputs(variadic="xs", shape=SameAs(input="xs"))
    assert [o.shape for o in with_count(spec, 2).outputs[1:]] == [SameAs(input="xs[0]"), SameAs(input="xs[1]")]
    shapes = shapes_by_input([(spec.inputs[0], (1,)), (spec.inputs[1], (2,)), (spec.inputs[1], (3, 4))])
    assert shapes == {"x": (1,), "xs": (2,), "xs[0]": (2,), "xs[1]": (3, 4)}


def test_outputs_are_a_list_behind_the_others() -> None:
    assert nested(SPEC, (1, 2, 3)) == (1, [2, 3])
    assert flat((1, [2, 3])) == (1, 2, 3)
    alone = replace(SPEC, outputs=(PARTS,))
    assert nested(alone, (2, 3)) == [2, 3] and flat([2, 3]) == (2, 3)


def test_the_torch_schema_has_a_list_which_needs_torch_2_10() -> None:
    spec = replace(SPEC, inputs=SPEC.inputs[:1], attributes=SPEC.attributes[:1])
    assert torch_schema(spec) == "my::several(Tensor x, int count) -> (Tensor, Tensor[])"
    assert stable_abi_since(spec) == "2.10"


def test_the_search_draws_no_more_outputs_than_a_model_may_have() -> None:
    drawn = output_sizes.bounded(SPEC, [(SPEC.inputs[0], (2, 2))], {"count": 10**6, "level": 0, "sizes": ()})
    assert 1 <= int(str(drawn["count"])) <= 64


# A change of the declaration, and what is reported.
WITHOUT = "allowed without a variadic output, which 'parts' is"
SIGNATURE = "my::several(Tensor x, Tensor[] xs, int count, int level, int[] sizes)"
MISTAKES: Mapping[str, tuple[dict[str, Any], str]] = {
    "not the last": (
        {"outputs": (PARTS, SPEC.outputs[0])},
        "outputs[0].variadic: 'parts' is not the last output; ONNX has a variadic one last",
    ),
    "nothing of that name": (
        {"outputs": (replace(PARTS, variadic="counts"),)},
        "outputs[0].variadic: found 'counts', allowed: xs, count, level, sizes; did you mean 'count'?",
    ),
    "a required input": (
        {"outputs": (replace(PARTS, variadic="x"),)},
        "outputs[0].variadic: found 'x', allowed: xs, count, level, sizes",
    ),
    "an int that may be 0": (
        {"outputs": (replace(PARTS, variadic="level"),)},
        "outputs[0].variadic: found 'level', whose minimum is None, allowed: an int with a minimum of 1 or more: a "
        "node has at least one output",
    ),
    "a size from the kernel": (
        {"outputs": (replace(PARTS, shape=FromKernel(rank=1)),)},
        "outputs[0].shape: found FromKernel at a variadic output, allowed: SameAs or Dims",
    ),
    "other axes of its own": (
        {"outputs": (replace(PARTS, variadic="xs", shape=SameAs(input="xs", replace={0: 2})),)},
        "outputs[0].shape: found replace={0: 2} of 'xs', allowed: SameAs(input='xs') alone: each output has the shape "
        "of its tensor",
    ),
    "the shape of a list that does not count": (
        {"outputs": (replace(PARTS, shape=SameAs(input="xs")),)},
        "outputs[0].shape.input: found 'xs', allowed: x",
    ),
    "optional": (
        {"outputs": (SPEC.outputs[0], replace(PARTS, optional=True))},
        f"outputs[1].optional: found True, {WITHOUT}",
    ),
    "beside an optional one": (
        {"outputs": (replace(SPEC.outputs[0], optional=True), PARTS)},
        f"outputs[0].optional: found True, {WITHOUT}",
    ),
    "the name of one of its tensors": (
        {"outputs": (replace(SPEC.outputs[0], name="parts_1"), PARTS)},
        "'parts_1': is the name of a tensor of 'parts'; choose another name",
    ),
    "a name of generated code": (
        {"outputs": (replace(SPEC.outputs[0], name="at_parts"), PARTS)},
        "'at_parts': is what generated code calls something of 'parts'; choose another name",
    ),
    "an operator of torch's own": (
        {"torch": TorchOp(name="aten::chunk", overrides=(Override(name="aten::chunk"),))},
        f"torch.overrides: found ['aten::chunk'], {WITHOUT}",
    ),
    "an operator in Python": (
        {"torch": TorchOp(name="my::several", python=True)},
        f"torch.python: found True, {WITHOUT}",
    ),
    "a gradient in C++": (
        {"torch": TorchOp(name="my::several", backward="several_backward")},
        f"torch.backward: found 'several_backward', {WITHOUT}",
    ),
    "nodes of other operators": (
        {"uses": ("other",)},
        f"uses: found ('other',), {WITHOUT}",
    ),
    "one tensor in the torch schema": (
        {"torch": TorchOp(name="my::several", schema=f"{SIGNATURE} -> (Tensor, Tensor)")},
        "Tensor, allowed: Tensor[], because the output 'parts' is variadic",
    ),
    "a list for another output": (
        {"torch": TorchOp(name="my::several", schema=f"{SIGNATURE} -> (Tensor[], Tensor[])")},
        "Tensor[], allowed: Tensor for each output; Tensor[] for a variadic output, the last one",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_declaration_is_named(mistake: str) -> None:
    changed, message = MISTAKES[mistake]
    found = [f"{m.field}: {m.text}" for m in declaration(replace(SPEC, **changed), "several")]
    assert any(message in text for text in found), found


def test_cases_and_models_without_an_item_of_what_counts_are_named() -> None:
    alone = replace(SPEC, outputs=(replace(PARTS, variadic="xs", shape=SameAs(input="xs")),))
    given = ((alone, model(tensors=0)), (of_outputs(variadic="sizes"), model(sizes=())))
    assert [f"{m.field}: {m.text}" for spec, one in given for m in cases(spec, [one])] == [
        f"MODELS[0].{place}, allowed: at least one, because 'parts' has as many"
        for place in ("cases[0] ('one').inputs['xs']: found no tensor", "attributes['sizes']: found no item")
    ]


def test_a_list_of_tensors_may_be_the_only_input() -> None:
    """As in torch._foreach_mul: its first tensor tells the dtype and the device."""
    spec = replace(
        SPEC,
        inputs=SPEC.inputs[1:],
        attributes=(),
        outputs=(replace(PARTS, variadic="xs", shape=SameAs(input="xs")),),
    )
    assert [*declaration(spec, "several")] == []
    found = bindings.render(spec, {"kernel.h"})["torch.cc"]
    assert 'KERNEL_CHECK(xs.count() > 0, "several: xs must have at least one tensor, got none");' in found
    assert "if (xs.begin()->dtype() == DType::float32)" in found
    made = python_modules.render(spec, {"kernel.h"})
    assert "[item.new_empty(item.shape) for item in xs]" in made["fake.py"]
    assert 'g.op("my.domain::Several", *xs, outputs=len(xs))' in made["lowering.py"]
    uncounted = replace(spec, outputs=(replace(PARTS, variadic=None, shape=Dims(dims=())),))
    fields = [m.field for m in declaration(uncounted, "several")]
    assert "inputs" in fields and "types['T']" in fields
