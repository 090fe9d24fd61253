"""What `doit check` reports for each result and error of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from opmatrix.addons.check import run_model
from opmatrix.addons.check.inputs import tolerances
from tests.addons.check.models import model

pytestmark = pytest.mark.ort


def test_a_fault_of_an_optimization_is_named() -> None:
    right, off = np.float32([[1, 2]]), np.float32([[1, 2.5]])
    made = model("y = Relu (x)")
    answers = {"optimised": [off], "not optimised": [right]}
    changed, agreeing = run_model.compare_with_expected(made, answers, {"y": right}, tolerances(None, None), of="torch")
    assert agreeing.mark == "ok" and agreeing.text.startswith("with torch, not optimised: 1 output")
    for found in (
        changed,
        *run_model.compare_settings(made, answers, tolerances(None, None)),
    ):
        assert found.mark == "wrong"
        assert "worst at (0, 1): expected 2.0, got 2.5" in found.text
        assert found.question == "optimizer"
    (found,) = run_model.compare_with_expected(
        made, answers | {"optimised": [right]}, {"y": right}, tolerances(None, None), of="torch"
    )
    assert found.mark == "ok"


def test_an_output_of_another_shape_or_dtype_is_reported() -> None:
    made, want = model("y = Relu (x)"), np.float32([[1, 2]])
    for got, words in (
        (np.float64([[1, 2]]), "dtype is float64"),
        (np.float32([1, 2]), "shape is (2,)"),
        ([], "a list"),
    ):
        answers = {"optimised": [got], "not optimised": [got]}
        (found,) = run_model.compare_with_expected(
            made,
            answers,  # type: ignore[arg-type]  # a list is no array, and this is what it reports
            {"y": want},
            tolerances(None, None),
            of="torch",
        )
        assert found.mark == "wrong"
        assert words in found.text
