"""Each planted fault is found, and the message names the wrong part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opmatrix.data.arrays import Array
from opmatrix.data.truth import Judge
from opmatrix.judge.judge_case import CaseJudgement, CaseRuns, Outputs, judge_case
from opmatrix.spec import DType, Tolerance

RIGHT = np.array([[1.0, math.nan, math.inf], [4.0, 5.0, 6.0]], np.float32)
TOLERANCES: dict[DType, Tolerance] = {"float32": Tolerance(rtol=1e-3, atol=1e-5)}
SETTINGS = ("optimised", "not optimised", "on two threads")


def wrong(index: tuple[int, int] = (1, 1), value: float = 5.5) -> Array:
    made = RIGHT.copy()
    made[index] = value
    return made


def check(
    *,
    outputs: dict[str, tuple[Outputs, Outputs]] | None = None,
    everywhere: Array = RIGHT,
    expected: Array = RIGHT,
    evaluated: Array = RIGHT,
    overwritten: tuple[str, ...] = (),
    independent: bool = False,
    vectors: Outputs = (),
    judge: Judge = Judge(precision="declared dtype"),  # noqa: B008 - it is frozen
) -> CaseJudgement:
    runs = dict.fromkeys(SETTINGS, ((everywhere,), (everywhere,))) | (outputs or {})
    return judge_case(
        CaseRuns(
            names=["y"],
            expected=(expected,),
            outputs=runs,
            evaluated=(evaluated,),
            tolerances=TOLERANCES,
            overwritten=overwritten,
            independent=independent,
            vectors=vectors,
            source="paper",
            judge=judge,
        )
    )


def test_equal_results_have_no_message() -> None:
    found = check()
    assert found.detail == ""
    assert [r.name for r in found.runs][:2] == ["optimised", "optimised, again"]
    assert len(found.runs) == 6


BOTH, ALMOST, WRONG = (RIGHT, RIGHT), (wrong(value=5.000001),), (wrong(),)
# What a case has, and its message; "..." stands for what other rows test.
DETAILS: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong kernel": (
        {"everywhere": wrong()},
        "1 of 6 elements differs beyond rtol=0.001 atol=1e-05; worst at (1, 1): expected 5.0, got 5.5. "
        "The reference evaluator agrees with the expected output: kernel or reference is wrong",
    ),
    "a model without custom nodes, whose evaluator is apart from the reference": (
        {"everywhere": wrong(), "independent": True},
        "1 of 6...runs no reference.py here, and agrees with the expected output: ONNX Runtime is wrong",
    ),
    "a reference in float64": (
        {"everywhere": wrong(), "judge": Judge(precision="float64")},
        "1 of 6...: kernel or reference (in float64) is wrong",
    ),
    "a dtype": (
        {"everywhere": RIGHT.astype(np.float64)},
        "dtype is float64, expected float32. The reference evaluator agrees with the expected...",
    ),
    "a shape": ({"everywhere": RIGHT.ravel()}, "shape is (6,), expected (2, 3). ..."),
    "an additional output": ({"outputs": dict.fromkeys(SETTINGS, (BOTH, BOTH))}, "2 outputs, expected 1. ..."),
    "stale test data": (
        {"expected": wrong()},
        "1 of 6 elements differs beyond rtol=0.001 atol=1e-05; worst at (1, 1): expected 5.5, got 5.0. "
        "The reference evaluator agrees with ONNX Runtime: the test data are stale or the reference has changed "
        "(python -m opmatrix data), or the model does not have the attributes of the case (python -m opmatrix export)",
    ),
    "the evaluator alone": (
        {"evaluated": wrong()},
        "ONNX Runtime gives the expected output, the reference evaluator does not: 1 of 6...",
    ),
    "two runs of one session": (
        {"outputs": {"optimised": ((RIGHT,), ALMOST)}},
        "two equal runs of one session (optimised) give different numbers: at (1, 1) 5.0, then 5...",
    ),
    "two threads": ({"outputs": {"on two threads": (ALMOST, ALMOST)}}, "one thread and two give different..."),
    "the last digits, by an optimization": ({"outputs": {"not optimised": (ALMOST, ALMOST)}}, ""),
    "an input that the kernel wrote to": ({"overwritten": ("x",)}, "the kernel wrote to its input 'x'"),
}


@pytest.mark.parametrize("differs", DETAILS)
def test_a_difference_and_what_is_wrong(differs: str) -> None:
    given, message = DETAILS[differs]
    detail = check(**given).detail
    begins, more, ends = message.partition("...")
    assert detail.startswith(begins) and detail.endswith(ends) if more else detail == message


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"everywhere": wrong((0, 1), 0.0)}, "worst at (0, 1): expected nan, got 0.0. The reference"),
        ({"everywhere": wrong((0, 1), math.inf)}, "worst at (0, 1): expected nan, got inf. The reference"),
        ({"everywhere": wrong((0, 1), -math.inf)}, "worst at (0, 1): expected nan, got -inf. The reference"),
        ({"everywhere": wrong(value=math.nan)}, "expected 5.0, got nan"),
        ({"everywhere": wrong(), "evaluated": wrong(value=7.0)}, "agrees with neither"),
        ({"outputs": {"optimised": ((RIGHT,), WRONG)}}, "(only in these runs: optimised, again)"),
        ({"outputs": {"not optimised": (WRONG, WRONG)}}, "(only in these runs: not optimised; not optimised, again)"),
    ],
)
def test_where_values_differ(given: dict[str, Any], part: str) -> None:
    assert part in check(**given).detail


THREE = {
    "the kernel": (wrong(), RIGHT, RIGHT, "The kernel alone differs: reference and the vectors (paper) agree"),
    "the vectors": (RIGHT, RIGHT, wrong(), "The vectors (paper) alone differ: kernel and reference agree"),
    "all": (wrong(), RIGHT, wrong(value=7.0), "Reference, kernel and the vectors (paper) all differ"),
    "none": (RIGHT, RIGHT, RIGHT, ""),
}


@pytest.mark.parametrize("alone", THREE)
def test_the_one_of_three_voices_that_is_alone_is_named(alone: str) -> None:
    kernel, reference, vectors, message = THREE[alone]
    found = check(everywhere=kernel, expected=reference, evaluated=reference, vectors=(vectors,)).detail
    assert found.endswith(message) and bool(found) == bool(message)


def test_a_voice_between_two_others_is_alone_with_none() -> None:
    """The tolerance, 0.005, is between the outer two and not between neighbours."""
    outer, other = wrong(value=5.004), wrong(value=4.996)
    found = check(everywhere=outer, expected=other, evaluated=other, vectors=(RIGHT,)).detail
    assert found.endswith("Reference and kernel disagree; the vectors (paper) agree with both")
