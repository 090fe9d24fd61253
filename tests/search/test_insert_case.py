"""A counterexample as Python text, and its insertion into cases.py."""

from __future__ import annotations

import math
from typing import Any

import pytest

from opmatrix.search.adopt_case import insert_into_models
from opmatrix.signature.python_source import source
from opmatrix.spec import Case, Model, Random, Values

MODEL = Model(
    name="found_1",
    types={"T": "float32"},
    attributes={"mode": "a'b", "sizes": (2,)},
    cases=(
        Case(
            name="found_1",
            inputs={
                "x": Random(
                    shape=(2, 3), deviation=1e30, specials={0: math.nan, 1: -math.inf, 2: 3.4028234663852886e38}
                ),
                "rest": (Values(values=((1.0,), (-0.0,))), Random(shape=(), layout="sliced")),
                "absent": None,
            },
        ),
    ),
)


def evaluated(text: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(f"from opmatrix.spec import *\nVALUE = {text}", namespace)
    return namespace["VALUE"]


def test_the_text_evaluates_to_the_model_and_has_short_lines() -> None:
    text = source(MODEL)
    assert repr(evaluated(text)) == repr(MODEL)
    assert max(map(len, text.splitlines())) <= 120
    assert 'layout="contiguous"' not in text and "mean" not in text  # defaults


def test_a_tensor_with_many_values_has_several_lines() -> None:
    values = Values(values=tuple(tuple(float(i * j) for j in range(9)) for i in range(9)))
    text = source(values)
    assert evaluated(text) == values
    assert max(map(len, text.splitlines())) < 120


@pytest.mark.parametrize(
    "models",
    [
        "MODELS = (A,)",
        "MODELS = (A, B)\n",
        "MODELS = (\n    A,\n    *(m for m in (B,)),\n)\n",
        "MODELS = ()",
        "MODELS = tuple([A, B])",
        "MODELS = A,\n",
        "MODELS: tuple[Model, ...] = (A, B)\n",
        "MODELS = (B,)\nMODELS = (A,)  # ä\n",
    ],
)
def test_the_new_case_is_the_last_and_the_others_stay(models: str) -> None:
    cases = f'"""Cäses."""\n\nfrom opmatrix.spec import Model\n\nA = Model(name="a", cases=())\nB = A\n{models}'
    before: dict[str, Any] = {}
    exec(cases, before)
    after: dict[str, Any] = {}
    text = insert_into_models(cases, source(MODEL), "y: 3 of 4 elements differ; " * 8)
    exec(text, after)
    assert after["MODELS"][:-1] == before["MODELS"]
    assert repr(after["MODELS"][-1]) == repr(MODEL)
    assert max(map(len, text.splitlines())) < 120
    assert "from opmatrix.spec import Case, Random, Values\n" in text


def test_a_file_without_models_is_refused() -> None:
    with pytest.raises(ValueError, match="assigns nothing to MODELS"):
        insert_into_models("for MODELS in ():\n    pass\n", source(MODEL), "")
