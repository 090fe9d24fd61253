"""The record of a failing case: where the wrong elements are, in small JSON, whatever the output's shape and dtype. A
failing case in a terminal: what numpy.testing shows, where the wrong elements are, in 14 lines of 80 columns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opmatrix.data.arrays import Array
from opmatrix.data.compare import EXACT, Pair, compare
from opmatrix.judge.message import with_values
from opmatrix.judge.mismatch import LEVELS, lines, measure, of_case
from opmatrix.spec import Tolerance
from tests.support.double import DYNAMIC, SPEC

TOLERANCE = Tolerance(rtol=1e-3, atol=1e-5)


def planted(shape: tuple[int, ...], *at: tuple[Any, ...], by: float = 1.0) -> tuple[Array, Array]:
    """Return an actual array that differs from the expected one at some indices."""
    expected = np.random.Generator(np.random.PCG64(0)).standard_normal(shape).astype(np.float32)
    actual = expected.copy()
    for index in at:
        actual[index] += by
    return actual, expected


def measured(actual: Array, expected: Array, tolerance: Tolerance = TOLERANCE) -> dict[str, Any]:
    """Return the record as it is read from its file."""
    found: dict[str, Any] = json.loads(json.dumps(measure(actual, expected, tolerance=tolerance), allow_nan=False))
    return found


def test_the_worst_element_and_the_counts() -> None:
    actual, expected = planted((4, 5, 6), (1, 2, 3), (3, 4, 5))
    actual[1, 2, 3] += 1
    found = measured(actual, expected)
    assert (found["shape"], found["dtype"], found["elements"], found["differing"]) == ([4, 5, 6], "float32", 120, 2)
    assert (found["rtol"], found["atol"], found["map_of"]) == (1e-3, 1e-5, "tolerance_used")
    worst = found["worst"]
    assert worst["at"] == list(compare(actual, expected, tolerance=TOLERANCE).worst or ()) == [1, 2, 3]
    assert np.float32(worst["expected"]) == expected[1, 2, 3] and np.float32(worst["actual"]) == actual[1, 2, 3]
    assert worst["error"] == pytest.approx(2, rel=5e-3) and worst["tolerance_used"] > 100 and worst["ulp"] > 1e6


def test_a_map_of_each_two_axes_shows_where_the_errors_are() -> None:
    actual, expected = planted((4, 5, 6), (slice(None), 2), by=1000.0)
    found = {tuple(m["axes"]): m["rows"] for m in measured(actual, expected)["maps"]}
    assert found.keys() == {(0, 1), (0, 2), (1, 2)}
    assert [[digit != "0" for digit in row] for row in found[0, 1]] == [[axis == 2 for axis in range(5)]] * 4
    assert [row != "000000" for row in found[1, 2]] == [False, False, True, False, False]
    assert all("0" not in row for row in found[0, 2])


@pytest.mark.parametrize(
    ("used", "digit"), [(0.0, "0"), (0.05, "1"), (1.0, "3"), (1.5, "4"), (3e6, "c"), (math.inf, "f")]
)
def test_the_digits_of_a_map_are_levels(used: float, digit: str) -> None:
    found = measured(np.array([9.0, used]), np.zeros(2), Tolerance(rtol=0, atol=1.0))
    assert found["maps"] == [{"axes": [0], "step": 1, "rows": [f"6{digit}"]}]
    level = int(digit, 16)
    assert digit == "f" or level == len(LEVELS) or used <= LEVELS[level]


def test_one_axis_is_folded_into_rows() -> None:
    actual, expected = planted((100_000,), (99_999,))
    (found,) = measured(actual, expected)["maps"]
    assert found["axes"] == [0] and found["step"] == 25
    joined = "".join(found["rows"])
    assert len(joined) == 4000 and joined[-1] != "0" and {*joined[:-1]} == {"0"}
    assert {len(row) for row in found["rows"][:-1]} == {64}


@pytest.mark.parametrize(
    "shape", [(), (1,), (3,), (1, 1, 7), (300, 500), (20, 30, 40, 50), (7, 8, 9, 10, 11), (2, 3, 2, 3, 2, 3, 2, 3)]
)
def test_the_record_is_small_for_every_shape(shape: tuple[int, ...]) -> None:
    expected = np.random.Generator(np.random.PCG64(1)).standard_normal(shape).astype(np.float32)
    found = measured(expected * np.float32(1.7), expected)
    assert len(json.dumps(found)) < 33_000
    assert all(len(m["rows"]) <= 64 and max(map(len, m["rows"])) <= 64 for m in found["maps"])
    assert all(digit != "0" for m in found["maps"] for row in m["rows"] for digit in row)


def test_an_error_larger_than_all_ulp_is_not_in_the_histogram() -> None:
    found = measured(np.array([1.0, 2.0, 3.0]), np.array([5e-324, 1.0, 3.0]), EXACT)
    assert found["worst"]["ulp"] is None
    assert found["ulps"] == {"equal": 1, "without": 1, "first": 52, "counts": [1]}


def test_errors_in_ulp_are_counted_by_powers_of_2() -> None:
    expected = np.ones(8, np.float32)
    actual = expected + np.float32(2**-23) * np.array([0, 0, 1, 2, 3, 4, 5, 0], np.float32)
    expected[7] = actual[7] = 0.0
    found = measured(actual, expected, EXACT)["ulps"]
    assert found == {"equal": 2, "without": 1, "first": 0, "counts": [1, 1, 2, 1]}


def test_points_are_the_worst_first_and_then_others() -> None:
    actual, expected = planted((1000,), *((n,) for n in range(0, 1000, 2)))
    actual[444] += 50_000
    found = measured(actual, expected)["points"]
    assert (found["at"][0], found["worst"]) == (444, 96)
    assert len({*found["at"]}) == len(found["at"]) == len(found["expected"]) == len(found["error"]) > 200
    assert all(n % 2 == 0 for n in found["at"][:96]) and any(n % 2 for n in found["at"][96:])
    assert all(np.float32(found["actual"][i]) == actual[n] for i, n in enumerate(found["at"]))


def test_the_neighbours_of_the_worst_element() -> None:
    actual, expected = planted((3, 50), (1, 48))
    found = measured(actual, expected)["around"]
    assert found["from"] == 40 and len(found["expected"]) == len(found["actual"]) == 10
    assert np.float32(found["actual"][8]) == actual[1, 48]


@pytest.mark.parametrize(
    ("expected", "actual", "shown"),
    [
        (np.array([1, 2**60], np.int64), np.array([1, 2**60 + 1], np.int64), [str(2**60), str(2**60 + 1)]),
        (np.array([True, True]), np.array([True, False]), [True, False]),
        (np.array(["a", "b"], object), np.array(["a", "c" * 999], object), ["b", "c" * 197 + "..."]),
        (np.array([1, 0], np.float16), np.array([1, np.nan], np.float16), [0.0, "NaN"]),
        (np.array([1, np.inf], np.float64), np.array([1, -np.inf]), ["Infinity", "-Infinity"]),
        (np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 3], ml_dtypes.bfloat16), [2.0, 3.0]),
        (np.array([1, 2], ml_dtypes.float8_e5m2), np.array([1, 3], ml_dtypes.float8_e5m2), [2.0, 3.0]),
        (np.array([1, -8], ml_dtypes.int4), np.array([1, 7], ml_dtypes.int4), [-8, 7]),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)  # fmt: skip
def test_every_dtype_has_a_record(expected: Array, actual: Array, shown: list[object]) -> None:
    found = measured(actual, expected, EXACT)
    assert found["differing"] == 1 and found["worst"]["at"] == [1]
    assert [found["worst"]["expected"], found["worst"]["actual"]] == shown
    assert found["maps"][0]["rows"][0][0] == "0" != found["maps"][0]["rows"][0][1]


def test_another_shape_has_no_maps() -> None:
    found = measured(np.zeros((2, 3)), np.zeros((3, 2)))
    assert found["problem"] == "shape is (2, 3), expected (3, 2)" and "maps" not in found


def test_the_first_pair_that_differs_is_measured() -> None:
    actual, expected = planted((2, 3), (1, 2))
    same = Pair("kernel", [expected, expected], "reference", [expected, expected], [TOLERANCE, TOLERANCE])
    other = Pair("kernel, again", [expected, actual], "kernel", [expected, expected], [EXACT, EXACT])
    found = of_case(SPEC, DYNAMIC, "plain", {"X": expected}, ["y", "z"], [same, other])
    assert found is not None
    assert [found[key] for key in ("case", "model", "output", "actual_is", "expected_is")] == [
        "plain", "dynamic", "z", "kernel, again", "kernel",
    ]  # fmt: skip
    assert found["attributes"] == {"factor": "2.0"}
    assert found["inputs"] == [{"name": "X", "dtype": "float32", "shape": [2, 3]}]
    assert of_case(SPEC, DYNAMIC, "plain", {}, ["y", "z"], [same]) is None
    fewer = Pair("kernel", [expected], "reference", [expected, expected], [TOLERANCE, TOLERANCE])
    assert of_case(SPEC, DYNAMIC, "plain", {}, ["y", "z"], [fewer]) is None


TEXT_TOLERANCE = Tolerance(rtol=1e-4, atol=1e-6)


def record(
    actual: Array, expected: Array, tolerance: Tolerance = TEXT_TOLERANCE, **attributes: Any
) -> Mapping[str, Any]:
    pair = Pair("ONNX Runtime, optimised", [actual], "reference in float64", [expected], [tolerance])
    model = replace(DYNAMIC, attributes={**DYNAMIC.attributes, **attributes})
    found = of_case(SPEC, model, "small", {"x": expected, "scale": np.ones(4, np.float32)}, ["y"], [pair])
    assert found
    return found


def shown(actual: Array, expected: Array, tolerance: Tolerance = TEXT_TOLERANCE) -> list[str]:
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
