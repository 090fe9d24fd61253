"""The tolerance that measured errors call for, and how far outputs move with their inputs. What the search says of a
drawn input whose output differs: how much, and in which precision the reference is the judge where it is not
float64.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.data import truth
from opmatrix.data.arrays import Array
from opmatrix.data.reference import Argument, Reference
from opmatrix.judge import message as case_message
from opmatrix.judge.rounding import difference
from opmatrix.ort_checks import tolerances
from opmatrix.ort_checks.tolerances import Measured, called_for, looser, measure
from opmatrix.search import drawn
from opmatrix.spec import Case, OpSpec, Tolerance, Values
from tests.support.double import DYNAMIC, SPEC, project
from tests.support.projects import with_reference

UNIT = 2.0**-23
ANY = Tolerance(rtol=1e-3, atol=0.0)


def array(*values: float) -> Array:
    return np.array(values, np.float32)


def test_errors_are_absolute_relative_in_ulp_and_scaled() -> None:
    found = measure(array(1 + 4 * UNIT, 3.0, math.nan), array(1.0, 3.0, math.nan), tolerance=ANY, scale=1.0)
    assert (found.error, found.relative, found.ulp, found.scaled) == (4 * UNIT, 4 * UNIT, 4.0, 2 * UNIT)
    assert found.tolerance_used == pytest.approx(4 * UNIT / 1e-3)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (array(math.nan), array(1.0)),
        (array(1.0), array(math.inf)),
        (array(1.0, 2.0), array(1.0)),
        (array(1.0), np.ones(1)),
    ],
)
def test_what_no_tolerance_accepts_is_infinite(actual: Array, expected: Array) -> None:
    found = measure(actual, expected, tolerance=ANY, scale=1.0)
    assert math.isinf(found.error) and math.isinf(found.scaled)
    assert called_for(found, unit=UNIT, scale=1.0) == Tolerance(rtol=math.inf, atol=math.inf)


@pytest.mark.parametrize(
    ("values", "scale"),
    [((1e-6, -2e-6), 2e-6), ((5.0, 0.1), 1.0), ((), 1.0), ((0.0,), 1.0), ((math.inf, 0.5), 0.5), ((math.nan,), 1.0)],
)
def test_an_absolute_tolerance_is_related_to_the_size_of_the_outputs(values: tuple[float, ...], scale: float) -> None:
    assert tolerances.scale([array(*values)]) == pytest.approx(scale)


@pytest.mark.parametrize(
    ("scaled", "scale", "rtol", "atol"),
    [(0.0, 1.0, 2e-7, 2e-7), (1e-6, 1.0, 5e-6, 5e-6), (1e-6, 1e-3, 5e-6, 5e-9), (2.5e-5, 1.0, 1e-4, 1e-4)],
)
def test_what_is_called_for_has_a_margin_and_one_digit(scaled: float, scale: float, rtol: float, atol: float) -> None:
    found = called_for(Measured(scaled=scaled), unit=UNIT, scale=scale)
    assert (found.rtol, found.atol) == pytest.approx((rtol, atol))


def test_a_loose_tolerance_is_one_that_neither_errors_nor_rounding_explain() -> None:
    called = called_for(Measured(scaled=1e-7), unit=UNIT, scale=1.0)
    assert looser(Tolerance(rtol=1e9, atol=0.0), called, 0.0, scale=1.0) > 1e14
    assert looser(Tolerance(rtol=1e-6, atol=1e-3), called, 0.0, scale=1.0) == pytest.approx(2000)
    assert looser(Tolerance(rtol=1e-6, atol=1e-3), called, 1e-3, scale=1.0) <= 1


def movement(root: Path, body: str, *inputs: Any, fixed: tuple[int, ...] = ()) -> list[Array] | None:
    paths = with_reference(root, "double", f"import numpy as np\n\ndef double(x, *more, factor):\n    {body}\n")
    arguments: tuple[Argument, ...] = inputs
    return tolerances.movements(Reference(paths, SPEC), arguments, {"factor": 2.0}, precision="float64", fixed=fixed)


def test_an_output_moves_as_its_inputs_do(tmp_path: Path) -> None:
    found = movement(tmp_path, "return x * factor", array(1.0, 4.0, 0.0, math.inf))
    assert found is not None
    np.testing.assert_array_equal(found[0], [2 * UNIT, 8 * UNIT, 0, 0])


def test_the_movements_of_a_sum_add_up(tmp_path: Path) -> None:
    """Elements that moved in opposite directions would cancel, and a large mean would look harmless."""
    found = movement(tmp_path, "return x.sum(keepdims=True) - 1000", array(*[1.0] * 1000))
    assert found is not None and found[0][0] == pytest.approx(1000 * UNIT)


def test_a_fixed_input_stays_and_one_that_may_not_move_gives_nothing(tmp_path: Path) -> None:
    body = "assert x[0] == 2, 'a count'; return x"
    assert movement(tmp_path / "a", body, array(2.0)) is None
    assert movement(tmp_path / "b", body, array(2.0), fixed=(0,)) is not None


MODEL = replace(DYNAMIC, cases=(Case(name="found", inputs={"x": Values(values=((1.0, 2.0), (3.0, 0.5)))}),))
NARROW = ". Compared in the declared dtype; the message of the adopted case says why"


def message(root: Path, value: str, *, spec: OpSpec = SPEC) -> str:
    """Return what differs between a kernel that doubles its input and a reference that returns `value`."""
    reference = Reference(project(root, reference=f"def double(x, *, factor):\n    return {value}\n"), spec)
    one = drawn.evaluate(spec, MODEL, reference)
    assert one.expected is not None
    return difference(spec, one, [2 * one.arrays[0]], reference)


def test_a_right_reference_gives_no_message(tmp_path: Path) -> None:
    assert message(tmp_path, "x * factor") == ""


def test_a_wrong_reference_is_judged_in_float64(tmp_path: Path) -> None:
    found = message(tmp_path, "x * factor + 1")
    assert found.startswith("y: 4 of 4 elements differ") and NARROW not in found


# References that are wrong in float32, or differ there from what they give in float64.
WRONG = {
    "in float32 alone": ("x * (3 if x.dtype == 'f4' else 2)", "it is 6.0, not 9.0"),
    "and returns float32": ("(x * 3).astype('f4')", "in float64 it gives 'y' as float32"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_reference_that_is_wrong_in_the_declared_dtype_is_named_as_the_judge(fault: str, tmp_path: Path) -> None:
    """The kernel is right: without the sentence, the message would send its reader there."""
    value, why = WRONG[fault]
    found = message(tmp_path, value)
    assert found.startswith("y: 4 of 4 elements differ") and found.endswith(NARROW)
    reference = Reference(
        project(tmp_path / "adopted", reference=f"def double(x, *, factor):\n    return {value}\n"), SPEC
    )
    x = np.array([[1.0, 2.0], [3.0, 0.5]], "f4")
    judge = truth.evaluate(reference, SPEC, MODEL.types, (x,), {"factor": 2.0}).judge
    adopted = case_message.two_voices(judge)
    assert adopted.startswith("kernel or reference is wrong, compared in the declared dtype: ") and why in adopted


def test_a_declared_jump_needs_no_sentence(tmp_path: Path) -> None:
    found = message(tmp_path, "x * factor + 1", spec=replace(SPEC, discontinuous="rounds"))
    assert found.startswith("y: 4 of 4 elements differ") and NARROW not in found
