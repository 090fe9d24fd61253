"""Which results are equal, and the message for a difference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opmatrix.data.arrays import numpy_dtype
from opmatrix.data.compare import EXACT, Comparison, compare
from opmatrix.judge.message import mismatch
from opmatrix.spec import DType, Tolerance

LOOSE = Tolerance(rtol=1e-3, atol=1e-5)
FLOATS: tuple[DType, ...] = ("float16", "bfloat16", "float32", "float64")
NAN, INF = math.nan, math.inf


def check(actual: Any, expected: Any, dtype: DType = "float32", tolerance: Tolerance = LOOSE) -> Comparison:
    a, e = np.array(actual, numpy_dtype(dtype)), np.array(expected, numpy_dtype(dtype))
    return compare(a, e, tolerance=tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_equal_themselves(dtype: DType) -> None:
    found = check([NAN, INF, -INF, 0.0, 1.0], [NAN, INF, -INF, -0.0, 1.0], dtype, EXACT)
    assert found.ok
    assert (found.error, found.ulp, found.tolerance_used) == (0, 0, 0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("actual", "expected"), [(1.0, NAN), (NAN, 1.0), (INF, -INF), (INF, NAN), (1.0, INF), (INF, 1.0), (0.0, NAN)]
)
def test_a_special_value_equals_nothing_else(actual: float, expected: float, dtype: DType) -> None:
    found = check([2.0, actual], [2.0, expected], dtype, Tolerance(rtol=1e9, atol=1e9))
    assert not found.ok
    assert found.worst == (1,)
    assert found.error == found.tolerance_used == INF


def test_the_limit_is_numpys_and_inclusive() -> None:
    within = check([1.5, 0.25], [1.0, 0.0], tolerance=Tolerance(rtol=0.25, atol=0.25))
    assert within.ok
    assert within.tolerance_used == 1.0
    assert not check([1.625], [1.0], tolerance=Tolerance(rtol=0.25, atol=0.25)).ok


@pytest.mark.parametrize(
    ("dtype", "ulp"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7), ("float8_e4m3fn", 2.0**-3), ("float32", 2.0**-23)]
)
def test_ulp_are_those_of_the_dtype(dtype: DType, ulp: float) -> None:
    found = check([1 + 3 * ulp, 0.0], [1.0, 0.0], dtype)
    assert found.ulp == 3
    assert found.error == 3 * ulp


def test_an_error_larger_than_all_ulp() -> None:
    found = check([1e300], [1e-300], "float64")  # NumPy warns about nothing
    assert (found.error, found.ulp) == (1e300, INF)


def test_zero_has_no_ulp() -> None:
    assert check([1e-6], [0.0]).ulp == 0


def test_the_message_names_the_worst_element() -> None:
    expected = np.full((4, 16), 0.1243, np.float32)
    actual = expected.copy()
    actual[0, 17 - 16], actual[3, 2], actual[1, 1] = 0.125, 0.1244999, 0.12430001
    found = compare(actual, expected, tolerance=LOOSE)
    assert str(found) == (
        "2 of 64 elements differ beyond rtol=0.001 atol=1e-05; worst at (0, 1): expected 0.1243, got 0.125"
    )
    assert mismatch("op-custom-case@cell", found, replay="do it") == f"op-custom-case@cell: {found}. Replay: do it"


def test_one_of_many_elements_differs() -> None:
    assert str(check([1.0, 3.0], [1.0, 2.0])).startswith("1 of 2 elements differs beyond")


@pytest.mark.parametrize("value", [2**53, 2**63 - 2, -(2**63)])
def test_wide_integers_are_compared_exactly(value: int) -> None:
    found = compare(np.array([value + 1]), np.array([value]), tolerance=EXACT)
    assert found.differing == 1
    assert found.error == found.ulp == 1
    assert compare(np.array([value + 1]), np.array([value]), tolerance=Tolerance(rtol=0.0, atol=1.0)).ok


def test_unsigned_integers_do_not_wrap() -> None:
    assert check([0], [2**64 - 1], "uint64", EXACT).error == pytest.approx(2.0**64)


def test_bools_and_strings() -> None:
    assert check([True, False], [True, False], "bool", EXACT).ok
    assert check(True, False, "bool", EXACT).worst == ()
    found = check(["a", "b"], ["a", "c"], "string", EXACT)
    assert "expected 'c', got 'b'" in str(found)
    assert check(["a"], ["".join(["a"])], "string", EXACT).ok


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty_arrays_with_equal_shapes_are_equal(shape: tuple[int, ...]) -> None:
    assert compare(np.zeros(shape), np.zeros(shape), tolerance=EXACT).ok
    assert compare(np.zeros(shape), np.zeros((*shape, 1)), tolerance=EXACT).problem.startswith("shape is")


def test_dtype_and_shape_are_compared_first() -> None:
    one = np.ones((1, 2), np.float32)
    assert str(compare(one.astype(np.float64), one, tolerance=LOOSE)) == "dtype is float64, expected float32"
    assert str(compare(one.ravel(), one, tolerance=LOOSE)) == "shape is (2,), expected (1, 2)"
    assert not compare(one.ravel(), one, tolerance=LOOSE).ok
