"""Each planted fault is found, and the message names the wrong part."""

from __future__ import annotations

import math

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


def test_a_wrong_kernel_is_named() -> None:
    assert check(everywhere=wrong()).detail == (
        "1 of 6 elements differs beyond rtol=0.001 atol=1e-05; worst at (1, 1): expected 5.0, got 5.5. "
        "The reference evaluator agrees with the expected output: kernel or reference is wrong"
    )


def test_a_model_without_custom_nodes_has_an_evaluator_apart_from_the_reference() -> None:
    detail = check(everywhere=wrong(), independent=True).detail
    assert detail.endswith("runs no reference.py here, and agrees with the expected output: ONNX Runtime is wrong")


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


def test_the_precision_of_the_reference_is_named() -> None:
    detail = check(everywhere=wrong(), judge=Judge(precision="float64")).detail
    assert detail.endswith(": kernel or reference (in float64) is wrong")


@pytest.mark.parametrize("value", [0.0, math.inf, -math.inf])
def test_nan_that_became_a_number(value: float) -> None:
    detail = check(everywhere=wrong((0, 1), value)).detail
    assert f"worst at (0, 1): expected nan, got {value}. The reference" in detail


def test_a_number_that_became_nan() -> None:
    assert "expected 5.0, got nan" in check(everywhere=wrong(value=math.nan)).detail


def test_a_wrong_dtype() -> None:
    detail = check(everywhere=RIGHT.astype(np.float64)).detail
    assert detail.startswith("dtype is float64, expected float32. The reference evaluator agrees with the expected")


def test_a_wrong_shape() -> None:
    assert check(everywhere=RIGHT.ravel()).detail.startswith("shape is (6,), expected (2, 3). ")


def test_an_additional_output() -> None:
    both = (RIGHT, RIGHT)
    assert check(outputs=dict.fromkeys(SETTINGS, (both, both))).detail.startswith("2 outputs, expected 1. ")


def test_stale_test_data_are_named() -> None:
    detail = check(expected=wrong()).detail
    assert "expected 5.5, got 5.0" in detail
    assert "agrees with ONNX Runtime: the test data are stale or the reference has changed" in detail


def test_three_different_results() -> None:
    assert "agrees with neither" in check(everywhere=wrong(), evaluated=wrong(value=7.0)).detail


def test_a_model_that_only_the_reference_evaluator_gets_wrong() -> None:
    detail = check(evaluated=wrong()).detail
    assert detail.startswith("ONNX Runtime gives the expected output, the reference evaluator does not: 1 of 6")


def test_a_result_that_is_wrong_only_in_the_second_run() -> None:
    detail = check(outputs={"optimised": ((RIGHT,), (wrong(),))}).detail
    assert "(only in these runs: optimised, again)" in detail


def test_a_result_that_is_wrong_only_in_one_optimization_setting() -> None:
    detail = check(outputs={"not optimised": ((wrong(),), (wrong(),))}).detail
    assert "(only in these runs: not optimised; not optimised, again)" in detail


def test_a_second_run_that_differs_within_the_tolerance() -> None:
    detail = check(outputs={"optimised": ((RIGHT,), (wrong(value=5.000001),))}).detail
    assert detail.startswith("two equal runs of one session (optimised) give different numbers: at (1, 1) 5.0, then 5")


def test_two_threads_that_differ_within_the_tolerance() -> None:
    almost = (wrong(value=5.000001),)
    assert check(outputs={"on two threads": (almost, almost)}).detail.startswith("one thread and two give different")


def test_optimization_may_change_the_last_digits() -> None:
    almost = (wrong(value=5.000001),)
    assert check(outputs={"not optimised": (almost, almost)}).detail == ""


def test_an_input_that_the_kernel_wrote_to() -> None:
    assert check(overwritten=("x",)).detail == "the kernel wrote to its input 'x'"
