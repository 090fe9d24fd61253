"""What wrong elements have in common: planted patterns are found, and random errors have none."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opmatrix.data.arrays import Array
from opmatrix.data.compare import EXACT, compare, pattern, with_pattern
from opmatrix.spec import Tolerance

TOLERANCE = Tolerance(rtol=1e-4, atol=1e-6)
ALL = slice(None)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(shape).astype(np.float32)


def found(actual: Array, expected: Array, tolerance: Tolerance = TOLERANCE) -> str:
    return pattern(actual, expected, tolerance=tolerance)


def spoiled(shape: tuple[int, ...], *where: Any) -> str:
    """Return the pattern of an output with random errors at some indices."""
    expected = normal(*shape)
    actual = expected.copy()
    for index in where:
        actual[index] += normal(*shape, seed=1)[index]
    return found(actual, expected)


@pytest.mark.parametrize(
    ("shape", "where", "expected"),
    [
        ((2, 32, 8, 8), (ALL, 4), "all of [:, 4] (index 4 of axis 1) and nothing else"),
        ((5, 7, 9), (2,), "all of [2] (index 2 of axis 0) and nothing else"),
        ((8, 8), (ALL, -1), "all of [:, 7] (index 7 of axis 1) and nothing else"),
        ((67,), (slice(64, None),), "all of [64:] (the end of axis 0, after a multiple of 16) and nothing else"),
        ((3, 67), (ALL, slice(64, 67)), "all of [:, 64:] (the end of axis 1, after a multiple of 16) and nothing else"),
        ((4, 21), (ALL, slice(16, 21)), "all of [:, 16:] (the end of axis 1, after a multiple of 16) and nothing else"),
        ((100, 3), (slice(40, None),), "all of [40:] (the end of axis 0) and nothing else"),
        ((64, 10), (slice(4),), "all of [:4] (the beginning of axis 0) and nothing else"),
        ((64, 10), (slice(8, 12),), "all of [8:12] (a part of axis 0) and nothing else"),
        ((100,), (slice(1, None, 4),), "all of [1::4] (every 4th of axis 0) and nothing else"),
        ((6, 40), (ALL, slice(0, None, 2)), "all of [:, ::2] (every 2nd of axis 1) and nothing else"),
        ((4, 16, 9), (1, slice(8)), "all of [1, :8] (index 1 of axis 0, the beginning of axis 1) and nothing else"),
    ],
)  # fmt: skip
def test_a_part_of_the_axes(shape: tuple[int, ...], where: Any, expected: str) -> None:
    assert spoiled(shape, where) == expected


def test_a_part_in_which_some_elements_are_right() -> None:
    assert spoiled((9, 30, 10), (ALL, 3, slice(0, 8))).startswith("all of [:, 3, :8] (index 3 of axis 1, the beginn")
    rows = [(n, 3, n * n % 10) for n in range(9)]
    assert spoiled((9, 30, 10), *rows) == "only in [:, 3] (index 3 of axis 1): 9 of its 90 elements"


@pytest.mark.parametrize(("shape", "axes"), [((2, 3, 9, 9), "2 axes"), ((7, 6, 8), "3 axes")])
def test_the_border(shape: tuple[int, ...], axes: str) -> None:
    spatial = [slice(1, -1)] * int(axes[0])
    border = np.ones(shape, bool)
    border[(..., *spatial)] = False
    assert spoiled(shape, border) == f"all of the border of the last {axes} and nothing else"


def test_a_square_matrix_transposed_and_one_of_a_batch() -> None:
    right = normal(5, 6, 6)
    assert found(right.transpose(0, 2, 1).copy(), right) == "the expected elements are there, transposed by (0, 2, 1)"
    for right in (normal(6, 6), normal(6, 8)):
        transposed = np.ascontiguousarray(right.T).reshape(right.shape)
        assert found(transposed, right) == "the expected elements are there, transposed by (1, 0)"


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_dtypes(dtype: Any) -> None:
    expected = (np.arange(80) % 17 + 1).astype(dtype).reshape(4, 20)
    actual = expected.copy()
    actual[:, 16:] *= dtype(3)
    where = found(actual, expected, Tolerance(rtol=0.01, atol=0.0))
    assert where.startswith("all of [:, 16:] (the end of axis 1,")


def test_strings_and_bools() -> None:
    words = np.array([f"w{n}" for n in range(60)], object).reshape(20, 3)
    other = words.copy()
    other[12:] = "x"
    assert found(other, words, EXACT) == "all of [12:] (the end of axis 0) and nothing else"
    flags = normal(20, 30) > 0
    wrong = flags.copy()
    wrong[:, 3] ^= True
    assert found(wrong, flags, EXACT) == "all of [:, 3] (index 3 of axis 1) and nothing else"


def test_few_elements_and_equal_arrays_have_no_pattern() -> None:
    expected = normal(8, 8)
    assert found(expected, expected) == ""
    for where in [(3, 4), (7, 7), (0, 0)]:
        assert spoiled((8, 8), where) == ""
    assert found(np.array(1.0), np.array(2.0)) == ""
    assert found(np.empty((0, 3)), np.empty((0, 3))) == ""


def test_random_errors_have_no_pattern() -> None:
    shapes = [(64,), (8, 8), (2, 32, 8, 8), (5, 7, 9), (100,), (1, 33)]
    claimed = []
    for seed in range(600):
        random = np.random.Generator(np.random.PCG64(seed))
        expected = random.standard_normal(shapes[seed % len(shapes)]).astype(np.float32)
        most = expected.size // 2 if seed % 3 else 12
        wrong = random.choice(expected.size, int(random.integers(1, most)), replace=False)
        actual = expected.copy()
        actual.ravel()[wrong] += random.standard_normal(len(wrong)).astype(np.float32)
        claimed += filter(None, [found(actual, expected)])
    assert len(claimed) <= 1, claimed


def test_a_comparison_has_the_pattern_at_the_end_of_its_message() -> None:
    expected = normal(6, 8)
    actual = expected.copy()
    actual[:, 2] = 0
    message = str(with_pattern(compare(actual, expected, tolerance=TOLERANCE), actual, expected))
    assert message.startswith("6 of 48 elements differ beyond rtol=0.0001 atol=1e-06; worst at ")
    assert message.endswith("; all of [:, 2] (index 2 of axis 1) and nothing else")
    right = compare(expected, expected, tolerance=TOLERANCE)
    assert with_pattern(right, expected, expected) is right
