"""A failing case in a terminal: what numpy.testing shows, where the wrong elements are, in 14 lines of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opmatrix.data.arrays import Array
from opmatrix.data.compare import EXACT, Pair
from opmatrix.judge.message import with_values
from opmatrix.judge.mismatch import lines, of_case
from opmatrix.spec import Tolerance
from tests.support.double import DYNAMIC, SPEC

TOLERANCE = Tolerance(rtol=1e-4, atol=1e-6)


def record(actual: Array, expected: Array, tolerance: Tolerance = TOLERANCE, **attributes: Any) -> Mapping[str, Any]:
    pair = Pair("ONNX Runtime, optimised", [actual], "reference in float64", [expected], [tolerance])
    model = replace(DYNAMIC, attributes={**DYNAMIC.attributes, **attributes})
    found = of_case(SPEC, model, "small", {"x": expected, "scale": np.ones(4, np.float32)}, ["y"], [pair])
    assert found
    return found


def shown(actual: Array, expected: Array, tolerance: Tolerance = TOLERANCE) -> list[str]:
    found = list(lines(record(actual, expected, tolerance)))
    assert len(found) <= 14 and max(map(len, found)) <= 78
    return found


def test_a_wrong_channel() -> None:
    expected = (np.arange(256, dtype=np.float32) / 4 + 1).reshape(2, 8, 4, 4)
    actual = expected.copy()
    actual[:, 4] *= 2
    assert shown(actual, expected) == [
        "output y: float32 (2, 8, 4, 4), rtol=0.0001 atol=1e-06",
        "actual: ONNX Runtime, optimised; expected: reference in float64",
        "Mismatched elements: 32 / 256 (12.5%)",
        "Max absolute difference: 52.8 at [1, 4, 3, 3]",
        "Max relative difference: 1, Max ULP difference: 1.38e+07",
        "Mismatched: all of [:, 4] (index 4 of axis 1) and nothing else",
        "at [1, 4, 3, 0:4]",
        "    expected     52  52.25   52.5  52.75",
        "      actual    104  104.5    105  105.5",
        "  difference     52   52.2   52.5   52.8",
        "inputs: x float32 (2, 8, 4, 4), scale float32 (4,)",
        "attributes: factor=2.0",
    ]


def test_a_nan_among_numbers() -> None:
    expected = np.ones((3, 40), np.float32)
    actual = expected.copy()
    actual[1, 37] = np.nan
    found = shown(actual, expected)
    assert "One of them at [1, 37], with NaN or an infinity on one side" in found
    actual_row = next(line for line in found if line.startswith("      actual"))
    assert actual_row.split()[1:].count("NaN") == 1 and not any("relative" in line for line in found)


def test_integers_strings_bools_scalars_and_shapes() -> None:
    whole = np.arange(67)
    assert "  difference   0   0   0   0   0   0   1   1   1" in shown(
        np.where(whole >= 64, whole + 1, whole), whole, EXACT
    )
    words = np.array(["a", "a long string with many words", "c"], object)
    other = np.array(["a", "another", "c"], object)
    assert "      actual                   'a'             'another'                   'c'" in shown(
        other, words, EXACT
    )
    assert any(line.startswith("One of them at [") for line in shown(np.ones(3, bool), np.zeros(3, bool), EXACT))
    assert "Max absolute difference: 1" in shown(np.array(2.5), np.array(1.5))
    assert shown(np.zeros((3, 4)), np.zeros((3, 5)))[2] == "Mismatch: shape is (3, 4), expected (3, 5)"


@pytest.mark.parametrize("size", [1, 1e30, 1e-30])
def test_many_digits_and_long_names_fit(size: float) -> None:
    expected = np.random.Generator(np.random.PCG64(0)).standard_normal((3, 50)) * size
    actual = expected * (1 + 1e-3)
    actual[:, 3:17] *= -1.0000001
    tolerance = Tolerance(rtol=1e-4, atol=0.0)
    shown(actual, expected, tolerance)
    found = list(lines(record(actual, expected, tolerance, factor="x" * 300)))
    assert len(found) <= 14 and max(map(len, found)) <= 78 and found[-1].startswith("attributes: ")


def test_the_first_fault_has_the_values_of_its_case() -> None:
    expected = np.ones((3, 4), np.float32)
    faults = {"other, small": "op-other: wrong", "third": "op-third: wrong"}
    found = with_values(faults, [record(expected * 2, expected)])
    assert found["other, small"].startswith("op-other: wrong\n  output y: float32 (3, 4)")
    assert found["third"] == faults["third"]
    assert with_values({"third": "refused"}, [record(expected * 2, expected)]) == {"third": "refused"}
    assert with_values({}, []) == {}
