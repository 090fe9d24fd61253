"""Large arrays are compared, drawn and rounded in blocks: the results are those of the whole, in little memory."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from opmatrix.basics import files
from opmatrix.basics.errors import DataError
from opmatrix.data import arrays, compare, dataset, truth, write_data
from opmatrix.data.arrays import Array, array, numpy_dtype
from opmatrix.data.compare import EXACT
from opmatrix.data.ruled_values import random_values
from opmatrix.declaration.load import Operator
from opmatrix.spec import Case, DType, Random, Tolerance, ValueRule
from tests.support.double import DYNAMIC, OPERATOR, project

LOOSE = Tolerance(rtol=1e-2, atol=1e-3)
DTYPES: tuple[DType, ...] = (
    "float32", "float64", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn", "int64", "uint64", "int8", "int4",
    "bool",
)  # fmt: skip
SHAPES = ((), (3, 0), (7,), (3, 4, 11))


@pytest.fixture(params=[5, 66])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes blocks small, so that a small array has several."""

    def use() -> None:
        for module in (arrays, compare):
            monkeypatch.setattr(module, "BLOCK", request.param)

    return use


def numbers(shape: tuple[int, ...], dtype: DType, seed: int) -> Array:
    random = np.random.Generator(np.random.PCG64(seed))
    with np.errstate(all="ignore"):
        values = random.standard_normal(shape) * 3
        return np.asarray(values > 0 if dtype == "bool" else values).astype(numpy_dtype(dtype))


def pairs(dtype: DType, shape: tuple[int, ...]) -> list[tuple[Array, Array]]:
    """Return arrays that differ nowhere, in a few places, in NaN and infinities alone, and everywhere."""
    expected = numbers(shape, dtype, 1)
    found = [
        (expected.copy(), expected),
        (numbers(shape, dtype, 2), expected),
        (expected.ravel()[::-1].reshape(shape), expected),
    ]
    for places in (slice(0, 1), slice(-1, None), slice(2, None, 3)):
        actual = expected.copy()
        actual.reshape(-1)[places] = numbers((), dtype, 3)
        found.append((actual, expected))
    if arrays.is_float(dtype):
        special = expected.copy()
        special.reshape(-1)[::4] = np.nan
        special.reshape(-1)[1::5] = np.inf
        special.reshape(-1)[3::7] = -0.0
        with np.errstate(all="ignore"):
            found += [(special, expected), (expected, special), (special, special.copy())]
            found.append(((special * np.asarray(1.001, special.dtype)).astype(special.dtype), special))
    if len(shape) > 1:  # a channel, and other strides
        channel = expected.copy()
        channel[..., -1:] = numbers((*shape[:-1], min(1, shape[-1])), dtype, 4)
        found.append((channel, expected))
        found.append((np.asfortranarray(found[1][0]), expected))
        found.append((found[1][0], np.asfortranarray(expected)))
        found.append((found[1][0][..., ::-1], expected[..., ::-1]))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_comparison_in_blocks_is_that_of_the_whole(dtype: DType, small_blocks: Callable[[], None]) -> None:
    all_pairs = [pair for shape in SHAPES for pair in pairs(dtype, shape)]
    whole = [compare.compare(*pair, tolerance=t) for pair in all_pairs for t in (EXACT, LOOSE)]
    same = [compare.same_bytes(*pair) for pair in all_pairs]
    patterns = [compare.pattern(*pair, tolerance=LOOSE) for pair in all_pairs]
    small_blocks()
    assert [compare.compare(*pair, tolerance=t) for pair in all_pairs for t in (EXACT, LOOSE)] == whole
    assert [compare.same_bytes(*pair) for pair in all_pairs] == same
    assert [compare.pattern(*pair, tolerance=LOOSE) for pair in all_pairs] == patterns
    assert any(c.differing for c in whole) and (any(patterns) or dtype == "bool")


def test_strings_are_compared_whole(small_blocks: Callable[[], None]) -> None:
    expected = np.array([f"a{n}" for n in range(200)], object).reshape(20, 10)
    actual = expected.copy()
    actual[7, 3] = actual[9, 1] = "b"
    small_blocks()
    for a, e in ((actual, expected), (np.asfortranarray(actual), expected)):
        found = compare.compare(a, e, tolerance=EXACT)
        assert (found.differing, found.worst, found.first, found.actual) == (2, (7, 3), (7, 3), "'b'")
    assert compare.compare(expected.copy(), expected, tolerance=EXACT).ok


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float8_e4m3fn", "int32", "uint8", "int4", "bool"])
def test_numbers_drawn_in_blocks_are_those_of_the_whole(dtype: DType, small_blocks: Callable[[], None]) -> None:
    tensor = Random(shape=(13, 17), mean=0.5, deviation=2.0, specials={0: 1, 220: 1} if dtype != "bool" else {})
    whole = array(tensor, dtype, seed_of="a/b/c")
    small_blocks()
    assert compare.same_bytes(array(tensor, dtype, seed_of="a/b/c"), whole)
    with pytest.raises(DataError, match=r"does not fit uint8, and is drawn with mean=0 and deviation=1e\+09"):
        array(Random(shape=(300,), deviation=1e9), "uint8", seed_of="a/b/c")


@pytest.mark.parametrize(
    ("rule", "dtype"),
    [
        (ValueRule(minimum=0.0), "float32"),
        (ValueRule(minimum=-1.0, maximum=1.0), "bfloat16"),
        (ValueRule(minimum=0, maximum=9, sorted="ascending"), "int64"),
        (ValueRule(minimum=3), "int32"),
        (ValueRule(minimum=0, unique=True), "int32"),
        (ValueRule(allowed=(-1, 2, 5)), "int8"),
        (ValueRule(unique=True, sorted="descending"), "float64"),
    ],
)
def test_values_with_a_rule_drawn_in_blocks_are_those_of_the_whole(
    rule: ValueRule, dtype: DType, small_blocks: Callable[[], None]
) -> None:
    def drawn() -> Array:
        return random_values(Random(shape=(13, 17), mean=0.5, deviation=2.0), rule, {}, dtype, seed_of="a/b/c")

    whole = drawn()
    small_blocks()
    assert compare.same_bytes(drawn(), whole) and len(np.unique(whole)) > 2


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2", "float32"])
def test_values_rounded_in_blocks_are_those_of_the_whole(
    dtype: DType, order: Any, small_blocks: Callable[[], None]
) -> None:
    raw = np.asarray(numbers((13, 17), "float64", 4), order=order)
    raw[::3, 1] = [np.nan, np.inf, -np.inf, 1e300, -1e-300]
    with np.errstate(all="ignore"):
        plain = (raw * (1 + 1e-3)).astype(numpy_dtype(dtype))

    def once() -> tuple[Array, float, bool]:
        with np.errstate(all="ignore"):
            made = arrays.rounded(raw, numpy_dtype(dtype))
            truth._round_once(raw, made, plain)
        return made, max(map(truth._largest, arrays.parts(made))), truth._is_longer(raw.astype(np.longdouble) / 3)

    whole = once()
    small_blocks()
    again = once()
    assert compare.same_bytes(again[0], whole[0]) and again[1:] == whole[1:]
    assert again[0].flags.c_contiguous


def test_a_comparison_of_large_arrays_takes_little_memory() -> None:
    expected = np.arange(4_000_000, dtype=np.float32)
    for actual in (expected * np.float32(1.5), expected[::-1], expected.reshape(2000, 2000).T.reshape(-1)[:]):
        tracemalloc.start()
        try:
            assert not compare.compare(actual, expected, tolerance=EXACT).ok
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < expected.nbytes / 2, f"{peak / expected.nbytes:.1f} copies"


# Files of test data.


@pytest.mark.parametrize("dtype", [*DTYPES, "string"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 7), (300, 7)])
def test_a_large_tensor_is_written_as_protobuf_writes_it(
    dtype: DType, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "LARGE", 0)
    values = np.full(shape, "aß", object) if dtype == "string" else numbers(shape, dtype, 1)
    written = dataset.DataSet(inputs={"näme": values}, outputs={"y": values[::-1] if shape else values})
    dataset.write(tmp_path, written)
    for path, wanted in ((tmp_path / "input_0.pb", values), (tmp_path / "output_0.pb", written.outputs["y"])):
        name = "näme" if path.name.startswith("input") else "y"
        assert path.read_bytes() == numpy_helper.from_array(wanted, name).SerializeToString(deterministic=True)
    found = dataset.read(tmp_path)
    assert list(found.inputs) == ["näme"] and len(found.outputs) == 1 and "other" not in found.inputs
    assert found.large == (dtype not in ("string", "int4"))
    for read, wanted in ((found.inputs["näme"], values), (found.outputs["y"], written.outputs["y"])):
        assert read.shape == wanted.shape and compare.compare(read, wanted, tolerance=EXACT).ok
    mark = files.mark(str(tmp_path / "input_0.pb"))
    dataset.write(tmp_path, written)
    assert files.mark(str(tmp_path / "input_0.pb")) == mark, "an equal file stays as it is"


def test_a_large_tensor_of_another_program_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields in another order, fields that are not known here, and values that are no plain bytes."""
    monkeypatch.setattr(dataset, "LARGE", 0)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = numpy_helper.from_array(values, "x")
    raw = TensorProto(raw_data=tensor.raw_data).SerializeToString()
    tensor.ClearField("raw_data")
    others = TensorProto(doc_string="text").SerializeToString() + tensor.SerializeToString()
    path = tmp_path / "input_0.pb"
    for content in (raw + others, others + raw):
        path.write_bytes(content)
        name, found = dataset.read_tensor(path)
        assert name == "x" and np.array_equal(found, values)
    path.write_bytes(TensorProto(name="x", data_type=1, dims=[6], float_data=range(6)).SerializeToString())
    assert np.array_equal(dataset.read_tensor(path)[1], values.ravel())


@pytest.mark.parametrize("length", [1, 5, 40, -1])
def test_a_damaged_large_tensor_is_named(length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "LARGE", 0)
    dataset.write(tmp_path, dataset.DataSet(inputs={"x": np.arange(20.0)}, outputs={"y": np.arange(2.0)}))
    path = tmp_path / "input_0.pb"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=r"input_0\.pb is not a tensor: "):
        dataset.read(tmp_path)


# The stage data.


def peak(operator: Operator, root: Path) -> int:
    """Return the largest resident memory of a fork of this process that runs the stage data."""
    paths = project(root)
    if (process := os.fork()) == 0:
        code = 1
        try:
            write_data.run(paths, operator)
            code = 0
        finally:
            os._exit(code)
    _, status, usage = os.wait4(process, 0)
    assert status == 0
    return usage.ru_maxrss * 1024


@pytest.mark.parametrize("kept", [0, 2])
def test_data_takes_four_copies_of_a_large_case(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And two more, planted in a call that the stage makes, are found. benchmarks/memory.py measures all steps."""
    case = Case(name="large", inputs={"x": Random(shape=(2000, 4000))})
    size = 2 * 2000 * 4000 * 4
    right, copies = truth.evaluate, list[bytes]()

    def keeping(*arguments: Any) -> truth.Truth:
        copies.extend(arguments[3][0].tobytes() * 2 for _ in range(kept))  # of the input, which is half of the case
        return right(*arguments)

    monkeypatch.setattr(truth, "evaluate", keeping)
    large = replace(OPERATOR, models=(replace(DYNAMIC, cases=(case,)),))
    small = replace(OPERATOR, models=(replace(DYNAMIC, cases=DYNAMIC.cases[:1]),))
    taken = (peak(large, tmp_path / "large") - peak(small, tmp_path / "small")) / size
    assert (taken > 4.0) == (kept > 0), f"{taken:.2f} copies"


def test_a_tensor_beyond_the_limit_of_protobuf_is_named_before_it_is_drawn(tmp_path: Path) -> None:
    case = Case(name="huge", inputs={"x": Random(shape=(30_000, 30_000))})
    with pytest.raises(DataError) as raised:
        write_data.run(project(tmp_path), replace(OPERATOR, models=(replace(DYNAMIC, cases=(case,)),)))
    assert str(raised.value) == (
        "ops/double/cases.py: case 'huge': input 'x' of shape (30000, 30000) in float32 has 3.6 GB; protobuf limits a "
        "tensor of test data to 2 GB. Give the case smaller sizes"
    )
