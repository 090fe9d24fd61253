"""The errors of outputs against a truth that is more exact than their dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opmatrix.addons.bench.forked import Errors
from opmatrix.addons.bench.turns import errors
from opmatrix.data.arrays import BLOCK
from opmatrix.spec import Tolerance

pytestmark = [pytest.mark.torch, pytest.mark.ort]

TOLERANCES = {"float32": Tolerance(rtol=1e-6, atol=0.0)}


def of(actual: list[float], truth: list[float], *, dtype: str = "float32") -> Errors:
    return errors({"y": np.array(actual, dtype)}, {"y": np.array(truth, np.float64)}, TOLERANCES)


def test_an_error_is_absolute_and_a_fraction_of_the_tolerance() -> None:
    found = of([1.0, 2.000001], [1.0, 2.0])
    assert found.output == "y" and not found.problem
    assert found.absolute == pytest.approx(9.5e-7, rel=0.01) and found.tolerance_used == pytest.approx(0.477, rel=0.01)


def test_the_nearest_number_of_the_dtype_uses_no_tolerance() -> None:
    found = of([0.1], [0.1])
    assert found.tolerance_used == 0 and 0 < (found.absolute or 0) < 1e-8


def test_a_dtype_without_a_tolerance() -> None:
    """As that of a peer which returns float64 for float32. Integers need none."""
    found = of([1.0, 3.0], [1.0, 2.0], dtype="float16")
    assert (found.absolute, found.tolerance_used) == (1.0, None)
    assert found.problem == "the operator has no tolerance for float16"
    both = errors(
        {"y": np.array([3.0]), "z": np.array([1.5], "f4")}, {"y": np.array([2.0]), "z": np.ones(1)}, TOLERANCES
    )
    assert both.output == "y" and both.problem
    assert errors({"y": np.array([1, 2])}, {"y": np.array([1, 2])}, {}).tolerance_used == 0
    assert errors({"y": np.array([1, 2])}, {"y": np.array([1, 3])}, {}).tolerance_used == math.inf


def test_an_error_in_the_last_block() -> None:
    wanted = np.zeros(3 * BLOCK // 2)
    made = wanted.astype(np.float32)
    made[-1] = 2
    assert errors({"y": made}, {"y": wanted}, {"float32": Tolerance(rtol=0.0, atol=1.0)}).tolerance_used == 2


@pytest.mark.parametrize(
    ("actual", "truth", "used"),
    [(math.nan, math.nan, 0), (math.inf, math.inf, 0), (math.inf, 1e300, 0), (math.inf, -math.inf, math.inf),
     (math.nan, 1.0, math.inf), (1.0, math.nan, math.inf), (1.0, math.inf, math.inf)],
)  # fmt: skip
def test_values_that_are_not_finite(actual: float, truth: float, used: float) -> None:
    """1e300 is an infinity in float32."""
    assert of([actual, 1.0], [truth, 1.0]).tolerance_used == used


def test_the_worst_output_counts_and_others_are_left_out() -> None:
    truth = {"y": np.array([1.0]), "z": np.array([1.0])}
    made = {"y": np.array([1.0], np.float32), "z": np.array([1.5], np.float32), "other": np.array([9.0])}
    assert errors(made, truth, TOLERANCES).output == "z"
    assert errors({"other": np.array([9.0])}, truth, {}).problem == "it has no output that the truth has"


def test_another_shape_has_no_error() -> None:
    found = of([1.0, 2.0], [1.0])
    assert found.absolute is None and found.problem == "output 'y' has the shape (2,), the truth (1,)"


def test_no_element_has_no_error() -> None:
    assert of([], []).tolerance_used == 0
