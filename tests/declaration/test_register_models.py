"""Which cases the parts of register use that start the exporters. Placeholders of new operators that are still to be
filled in. `OpSpec.elementwise`: declarations with one shape can have it, and others cannot.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opmatrix.basics.errors import DistError
from opmatrix.data.case_arrays import case_arrays, described, small_and_finite
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.declaration.models import sampled, samples, shaped
from opmatrix.declaration.source_files import reminder, require_filled
from opmatrix.declaration.validation.fields import Mistake
from opmatrix.declaration.validation.operator import declaration, handwritten_files
from opmatrix.project.paths import Paths
from opmatrix.spec import (
    Attribute,
    Case,
    Dims,
    FromKernel,
    FromVectors,
    Input,
    Model,
    Output,
    Override,
    Random,
    SameAs,
    Tensor,
    TorchOp,
    ValueRule,
    Values,
    shape_of,
    tensors_of,
)
from opmatrix.wheel import link
from opmatrix.wheel.settings import Dist
from tests.support.projects import write_files
from tests.support.specs import declare

ROOT = Path(__file__).parents[2]
PROJECTS = (ROOT, *(path.parent for path in sorted(ROOT.glob("tests/projects/*/ops"))))


def with_models(*models: Model) -> Operator:
    inverse = next(o for o in load_operators(Paths(ROOT)) if o.name == "inverse")
    return replace(inverse, models=models)


def model(name: str, dtype: Any, *tensors: Tensor) -> Model:
    cases = tuple(Case(name=f"{name}_{n}", inputs={"x": tensor}) for n, tensor in enumerate(tensors))
    return Model(name=name, types={"T": dtype}, cases=cases)


def names(models: tuple[Model, ...]) -> list[list[str]]:
    return [[case.name for case in model.cases] for model in models]


USABLE, EMPTY = Random(shape=(2, 2)), Random(shape=(0, 2))


@pytest.mark.parametrize(
    "tensor",
    [
        EMPTY,
        Random(shape=(1001,)),
        Random(shape=(2,), specials={0: math.nan}),
        Random(shape=(2,), deviation=1e308),
        Values(values=((1.0, 2.0), (3.0, math.inf))),
        FromVectors(shape=(2, 2)),
    ],
    ids=["empty", "large", "special", "far", "infinite", "from a file"],
)
def test_a_case_that_opcheck_cannot_run_is_no_sample(tensor: Tensor) -> None:
    operator = with_models(model("m", "float32", tensor, USABLE))
    assert [case.name for _, case, _ in samples(operator)] == ["m_1"]
    assert names(sampled(operator)) == [["m_0", "m_1"]], "with the first case, which is exported"


def test_a_further_case_and_a_further_model_of_known_dtypes_change_nothing() -> None:
    one, two, three = model("m", "float32", USABLE), model("n", "float64", EMPTY), model("o", "float64", EMPTY)
    more, found = model("m", "float32", USABLE, USABLE), sampled(with_models(one, two))
    assert names(found) == [["m_0"], ["n_0"]], "a torch may lack float32"
    assert sampled(with_models(more, two, three)) == found
    assert names(sampled(with_models(more, two, model("o", "float64", USABLE)))) == [["m_0"], ["n_0"], ["o_0"]]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_the_samples_are_those_of_the_arrays(project: Path) -> None:
    """The parts run with `sampled` alone, so these must have the samples of all; and no array may contradict the
    description."""
    for operator in load_operators(Paths(project)):
        if not operator.spec.torch:
            continue
        found, kept = ([*samples(one)] for one in (operator, replace(operator, models=sampled(operator))))
        assert [(m.name, case, counts) for m, case, counts in kept] == [(m.name, c, counts) for m, c, counts in found]
        first: dict[Any, str] = {}
        for one in operator.models:
            for case in filter(described, one.cases):
                if small_and_finite(case_arrays(operator.spec, one, case), elements=1000):
                    counts = tuple(len(tensors_of(case, i.name)) for i in operator.spec.inputs)
                    first.setdefault((*one.types.items(), counts), case.name)
        assert [case.name for _, case, _ in found] == [*first.values()]


def test_cases_of_computed_sizes_have_their_shapes_and_no_values() -> None:
    operators = {o.name: o for o in load_operators(Paths(ROOT))}
    assert shaped(operators["inverse"]) == ()
    nms = operators["nms"]
    for before, after in zip(nms.models, shaped(nms), strict=True):
        for case, bare in zip(before.cases, after.cases, strict=True):
            assert case.name == bare.name and {*case.inputs} == {*bare.inputs}
            for name, tensor in case.inputs.items():
                if isinstance(tensor, Random | Values):
                    assert bare.inputs[name] == FromVectors(shape=shape_of(tensor))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    files = {
        "ops/a/spec.py": '"""TODO: what a is."""\n\nx = 1  # TODO\n',
        "ops/a/README.md": "TODO\n",
        "native/a/kernel.h": "// whole\n",
        "ops/b/spec.py": '"""Fill in the form."""\n',
        "ops/b/README.md": "TODO\n",
    }
    write_files(tmp_path, files)
    return Paths(tmp_path)


def test_the_message_names_the_first_placeholder(paths: Paths) -> None:
    assert reminder(paths, "a") == ("a: 3 TODOs left (first: ops/a/README.md:1); `doit dist` refuses it")
    paths.kernel("a").write_text("// the sum\n\n// TODO\n")
    assert reminder(paths, "a") == "a: 4 TODOs left (first: native/a/kernel.h:3); it is a placeholder"
    assert reminder(paths, "b") == "b: 1 TODO left (first: ops/b/README.md:1); only its README is unfinished"
    assert reminder(paths, "none") == ""


def test_code_with_a_placeholder_is_not_shipped(paths: Paths) -> None:
    require_filled(paths, ["b"])
    dist = Dist(name="my_ops", version="1", operators=("a",), summary="", license=None, licenses=(), third_party={})
    for refuse in (
        lambda: require_filled(paths, ["b", "a"]),
        lambda: link.run(paths, dist, [SimpleNamespace(name="a")]),  # type: ignore[list-item]  # only its name is read
    ):
        with pytest.raises(DistError) as raised:
            refuse()
        assert str(raised.value).splitlines()[:2] == [
            "a wheel must not contain placeholders: TODOs are left in the lines",
            "  ops/a/spec.py: 1, 3",
        ]
        assert "operators = [...]" in str(raised.value)


def test_what_an_author_has_still_to_do_is_no_placeholder_and_the_mark_of_earlier_revisions_is_one(
    paths: Paths,
) -> None:
    kernel = paths.kernel("b")
    kernel.parent.mkdir(parents=True)
    kernel.write_text("// TODO(ann): vectorize\nint TODOS = 0;\n")
    (kernel.parent / "copied.h").write_text("// TODO: of another project\n")
    require_filled(paths, ["b"])
    (kernel.parent / "copied.h").unlink()
    for text in ("// TODO: vectorize\n", "// FILL IN: compute y\n"):
        kernel.write_text(text)
        assert reminder(paths, "b") == "b: 2 TODOs left (first: native/b/kernel.h:1); it is a placeholder"
        with pytest.raises(DistError, match=r"native/b/kernel\.h: 1\n"):
            require_filled(paths, ["b"])


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
    assert (found.field, found.text) == (
        "torch.cc",
        "found with elementwise=True in spec.py, allowed: one of both; the file decides which tensors are copied. "
        "Remove elementwise=True, or this file",
    )
    assert list(handwritten_files(replace(SPEC, elementwise=False), files)) == []
