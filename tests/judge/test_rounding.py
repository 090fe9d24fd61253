"""What the search says of a drawn input whose output differs: how much, and in which precision the reference is the
judge where it is not float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opmatrix.data import truth
from opmatrix.data.reference import Reference
from opmatrix.judge import message as case_message
from opmatrix.judge.rounding import difference
from opmatrix.search import drawn
from opmatrix.spec import Case, OpSpec, Values
from tests.support.double import DYNAMIC, SPEC, project

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
