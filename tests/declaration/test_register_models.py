"""Which cases the parts of register use that start the exporters."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.data.case_arrays import case_arrays, described, small_and_finite
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.declaration.models import sampled, samples, shaped
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, FromVectors, Model, Random, Tensor, Values, shape_of, tensors_of

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
