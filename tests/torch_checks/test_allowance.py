"""The error that the property test allows: the change of the exact result when inputs change by one unit in the last
place, whether these changes add up or cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opmatrix.data.arrays import Array
from opmatrix.search.drawn import DrawnCase
from opmatrix.spec import Case, Model, Random, Tolerance
from tests.support.specs import declare

pytestmark = pytest.mark.torch

SPEC = declare(
    "made(x: float64) -> y: float64 like x",
    onnx="test::Made",
    summary="Made of one tensor.",
    tolerances={"custom": {"float64": Tolerance(rtol=1e-15, atol=0.0)}},
)
RANDOM = np.random.default_rng(0).normal(size=400)
HUGE = np.concatenate([RANDOM, [1e153, -1e153]])


def centred(x: Array) -> Array:
    return x - x.mean()


def pairs(x: Array) -> Array:
    """Return the difference to the neighbour: equal changes of both cancel."""
    return x - x.reshape(-1, 2)[:, ::-1].ravel()


def halves(x: Array) -> Array:
    """Return the difference to the element 4 places away, as in a rotation of the halves of a head."""
    return x - x.reshape(-1, 2, 4)[:, ::-1].ravel()


def problem(function: Callable[[Array], Array], x: Array, off: float) -> str:
    """Return the message for a kernel whose results are `off`."""
    import torch

    from opmatrix.torch_checks.kernel_check import KernelCheck

    def exact(given: Any, attributes: Any, *, precision: str = "") -> tuple[Array, ...]:
        return (function(given[0].astype(np.longdouble)).astype(np.float64),)

    def kernel(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(exact((x.numpy(),), {})[0] + off)

    case = Case(name="only", inputs={"x": Random(shape=x.shape)})
    one = DrawnCase(model=Model(name="only", cases=(case,)), arrays=[x], expected=exact((x,), {}), refusal="")
    judge = KernelCheck(spec=SPEC, overload=kernel, reference=exact)  # type: ignore[arg-type]
    return judge.problem(one)


@pytest.mark.parametrize(
    ("function", "x", "unit"),
    [
        (centred, RANDOM, 1e-16),  # the mean changes as much as its elements do, though most changes would cancel
        (centred, HUGE, 1e134),  # two elements that cancel, but not their last places
        (pairs, RANDOM + 1e6, 1e-10),
        (halves, RANDOM + 1e6, 1e-10),
        (lambda x: 3 * x - 2.9999, np.array([1.0]), 4e-16),
    ],
    ids=["sum", "cancelled", "difference", "distant_difference", "one_number"],
)
def test_errors_that_rounding_of_the_inputs_explains(function: Callable[[Array], Array], x: Array, unit: float) -> None:
    assert problem(function, x, off=2 * unit) == ""
    assert "rounding of the inputs does not explain it" in problem(function, x, off=100 * unit)


def test_no_tolerance_makes_a_finite_result_an_infinity() -> None:
    """``rtol * inf`` would allow every finite value."""
    from opmatrix.judge.rounding import is_rounding

    expected, tolerance = np.array([np.inf, -np.inf, 1.0]), Tolerance(rtol=1e-3, atol=0.0)
    still = np.zeros(3)
    assert is_rounding(np.array([np.inf, -np.inf, 1.0005]), expected, tolerance, still)
    assert not is_rounding(np.array([1.0, -np.inf, 1.0]), expected, tolerance, still)
    assert not is_rounding(np.array([np.inf, -1e308, 1.0]), expected, tolerance, still)
    assert not is_rounding(np.array([-np.inf, -np.inf, 1.0]), expected, tolerance, still)
    assert is_rounding(np.array([1.0, -np.inf, 1.0]), expected, tolerance, np.array([np.inf, 0.0, 0.0]))
