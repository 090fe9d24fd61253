"""The folder of a failing gradient replays with torch alone, for each kind of schema, and of call of backward()."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.declaration.load import load_operator
from opmatrix.ort_checks import save_case
from opmatrix.project.paths import Paths
from opmatrix.search import drawn
from tests.support.projects import ROOT
from tests.support.taken_away import replayed
from tests.torch_checks.test_gradient_check import check, measured, registered

pytestmark = [pytest.mark.torch, pytest.mark.deep]

TWICE = """

_right = backward


def _twice(found):
    if isinstance(found, (list, tuple)):
        return type(found)(map(_twice, found))
    return None if found is None else 2 * found


def backward(ctx, *grads):
    return _twice(_right(ctx, *grads))
"""
TWICE_IN_REFERENCE = """

_right = soft_cap_backward


def soft_cap_backward(*inputs, **attributes):
    return tuple(None if found is None else 2 * found for found in _right(*inputs, **attributes))
"""


def failing(paths: Paths, name: str) -> dict[str, Any]:
    """Return what the report has of an operator's gradient."""
    (record,) = measured(paths, name)
    return record


def without_drawn(paths: Paths, name: str) -> str:
    """Return the message of the gradient part."""
    drawn.write(paths.drawn_inputs(name), [])
    return registered(paths, name)


def saved(paths: Paths, name: str, record: dict[str, Any], into: Path) -> str:
    """Save the gradient, and return what its replay prints, which must fail."""
    save_case.run(paths, load_operator(paths, name), lowering=None, cells=[], case=record["case"], into=into)
    done = replayed(into)
    assert done.returncode == 1 and done.stderr == "", done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("project", "name"),
    [
        ("halves", "weighted_sum"),
        ("in_place", "axpy"),
        ("in_place", "split_sign"),
        ("in_torch", "rms_scale"),
        ("scalars", "damped"),
        ("schemas", "rows"),
        ("seeds", "dropout"),  # whose backward() calls the operator
        ("variadic", "scale_all"),
    ],
)
def test_a_gradient_of_each_kind_of_schema_replays(project: str, name: str, tmp_path: Path) -> None:
    paths = Paths(shutil.copytree(ROOT / "tests/projects" / project, tmp_path / "project"))
    formula = paths.torch_op(name)
    formula.write_text(formula.read_text() + TWICE)
    assert "gradcheck says: Jacobian mismatch" in without_drawn(paths, name)
    record = failing(paths, name)
    counts = f"{record['output']}: {record['differing']} of {record['elements']} elements differ"
    assert counts in saved(paths, name, record, tmp_path / "saved")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return of_x,", "return of_x * (2 if x.dtype == torch.float32 else 1),", "backward() in float64"),
        ("    (x,)", "    grad = grad if grad.is_contiguous() else grad.flip(0)\n    (x,)", "for a contiguous one"),
        ("    (x,)", "    grad = grad * 2 if 0 in grad.stride() else grad\n    (x,)", "for a contiguous one"),
        ("grad.sum(0) if", "ctx.needs_input_grad[0] * grad.sum(0) if", "while all inputs require one"),
    ],
    ids=["float32", "strides", "expanded", "frozen"],
)
def test_a_gradient_that_is_wrong_in_one_call_replays(old: str, new: str, said: str, tmp_path: Path) -> None:
    check(tmp_path / "project", ("torch_op", old, new))
    paths = Paths(tmp_path / "project")
    record = failing(paths, "mix")
    assert said in record["expected_is"]
    assert f"{record['expected_is']} " in saved(paths, "mix", record, tmp_path / "saved")


def test_a_gradient_by_an_operator_has_data_and_no_folder(tmp_path: Path) -> None:
    paths = Paths(shutil.copytree(ROOT / "tests/projects/backward", tmp_path / "project"))
    reference = paths.reference("soft_cap_backward")
    reference.write_text(reference.read_text() + TWICE_IN_REFERENCE)
    assert "gradcheck says: Jacobian mismatch" in without_drawn(paths, "soft_cap")
    record = failing(paths, "soft_cap")
    assert record["differing"] and not record["saved"]
    with pytest.raises(
        UsageError, match="the operator soft_cap_backward computes its gradient, and torch alone cannot"
    ):
        saved(paths, "soft_cap", record, tmp_path / "saved")
