"""Arrays made from the tensors of a case, also strings and the states of generators; which arrays are equal, and the
message for a difference.
"""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data import arrays, dataset, write_data
from opmatrix.data.arrays import array, dtype_name, numpy_dtype, seed_of
from opmatrix.data.case_arrays import case_arrays, generator_state
from opmatrix.data.compare import EXACT, Comparison, compare, same_bytes
from opmatrix.data.dataset import DataSet
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.judge import cases
from opmatrix.judge.message import mismatch
from opmatrix.project.dtypes import DTYPES
from opmatrix.project.paths import Paths
from opmatrix.search import draw_models
from opmatrix.search.draw_values import few
from opmatrix.search.invalid_calls import invalid_calls
from opmatrix.spec import Case, DType, Model, Nested, Random, Tensor, Tolerance, Values
from tests.support.projects import ROOT, with_reference
from tests.support.specs import declare

SEED = "op/case/x"
NAN, INF = math.nan, math.inf
HARD = ["a\0b", "a\0", "\0", "", "ä€😀", "x" * 300]


def make(tensor: Tensor, dtype: DType = "float32") -> np.ndarray:
    return array(tensor, dtype, seed_of=SEED)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_made_and_named(dtype: DType) -> None:
    value = {"bool": True, "string": "a"}.get(dtype, 1)
    made = make(Values(values=((value,), (value,))), dtype)
    assert made.shape == (2, 1)
    assert made.dtype == numpy_dtype(dtype)
    assert dtype_name(made) == dtype


def test_random_values_depend_only_on_the_seed() -> None:
    """Not on the layout. Those of an unsigned dtype are absolute values, and specials are at flat indices."""
    made = make(Random(shape=(3, 4)))
    np.testing.assert_array_equal(make(Random(shape=(3, 4))), made)
    assert (made != array(Random(shape=(3, 4)), "float32", seed_of=seed_of("op", "other", "x"))).all()
    transposed = make(Random(shape=(3, 4), layout="transposed"))
    assert np.array_equal(transposed, made) and transposed.flags.c_contiguous
    signed, unsigned = (make(Random(shape=(50,), deviation=3.0), dtype) for dtype in ("int32", "uint8"))
    assert (signed < 0).any() and np.array_equal(unsigned, np.abs(signed))
    large = make(Random(shape=(50,), mean=100.0, deviation=3.0), "uint16")
    assert np.array_equal(large, make(Random(shape=(50,), mean=100.0, deviation=3.0), "int32"))
    special = make(Random(shape=(3, 4), specials={1: math.nan, 5: -math.inf}))
    assert math.isnan(special[0, 1]) and special[1, 1] == -math.inf
    assert np.isfinite(special).sum() == 10


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (200,)])
@pytest.mark.parametrize(
    ("dtype", "found"), [("int8", {4, 5, 6}), ("bool", {True, False}), ("float32", set()), ("string", {"", "0"})]
)
def test_shapes_and_values(dtype: DType, found: set[object], shape: tuple[int, ...]) -> None:
    """Random integers are whole, bools mixed, and strings short and of letters of one to four bytes."""
    made = make(Random(shape=shape, mean=5.0), dtype)
    assert made.shape == shape and made.dtype == numpy_dtype(dtype)
    if shape == (200,):
        assert {*made.tolist()} >= found - {"0"}
        if dtype == "string":
            flat = made.tolist()
            assert {len(value) for value in flat} == {*range(9)}
            assert {len(letter.encode()) for value in flat for letter in value} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("float32", ()), ("float32", 3.0), ("bfloat16", (INF, -INF)), ("int64", (-(2**63), 2**63 - 1)),
        ("uint64", (0, 2**64 - 1)), ("int64", (2**53 + 1, 0)),
    ],
)  # fmt: skip
def test_given_values_are_exact(dtype: DType, values: Nested) -> None:
    made = make(Values(values=values), dtype)
    assert made.shape == np.shape(values) and np.array_equal(made.tolist(), values)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_mean_and_deviation(dtype: DType) -> None:
    made = make(Random(shape=(1000,), mean=50.0, deviation=2.0), dtype).astype(np.float64)
    assert made.mean() == pytest.approx(50, abs=0.3)
    assert made.std() == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize(
    ("tensor", "dtype", "message"),
    [
        (Values(values=((1.0, 2.0), (3.0,))), "float32", "ragged values: found 1 values where 2 values stood before"),
        (Values(values=((1.0,), 2.0)), "float32", "ragged values: found the number 2.0"),
        (Values(values=(1.0, (2.0,))), "float32", "ragged values: found 1 values where one number stood before"),
        (Random(shape=(2, 3), specials={6: 0.0}), "float32", "special at flat index 6, allowed: 0 to 5"),
        (Random(shape=(2,), specials={-1: 0.0}), "float32", "special at flat index -1"),
        (Random(shape=(2,), specials={0: math.nan}), "int32", "nan does not fit int32"),
        (Values(values=(1.5,)), "int32", "1.5 does not fit int32"),
        (Values(values=(300,)), "uint8", "300.0 does not fit uint8"),
        (Values(values=(2**63,)), "int64", "9.223372036854775808e+18 does not fit int64"),
        (Values(values=(70000.0,)), "float16", "70000.0 does not fit float16"),
        (Values(values=(500.0,)), "float8_e4m3fn", "500.0 does not fit float8_e4m3fn"),
        (Values(values=(math.inf,)), "float8_e5m2fnuz", "inf does not fit float8_e5m2fnuz"),
        (Random(shape=(9,), mean=-5.0), "uint8", "does not fit uint8"),
        (
            Random(shape=(9,), deviation=1e9),
            "int8",
            "does not fit int8, and is drawn with mean=0 and deviation=1e+09: choose others, such as a smaller",
        ),
        (Values(values=(True,)), "float32", "True is no float32"),
        (Values(values=(1,)), "bool", "1 is no bool"),
        (Values(values=("1",)), "float32", "'1' is no float32"),
        (Values(values=("a", "\ud800")), "string", r"'\ud800' is not a string of ONNX: UTF-8 cannot encode it"),
    ],
)
def test_an_invalid_tensor_is_refused(tensor: Tensor, dtype: DType, message: str) -> None:
    with pytest.raises(DataError) as caught:
        make(tensor, dtype)
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in ("bool", "string")])
def test_each_value_that_ties_are_drawn_of_fits_its_dtype(dtype: DType) -> None:
    """float8_e4m3fn has no infinity: a new operator with such an input, `doit new --from-onnx`, failed."""
    values = few(SimpleNamespace(numbers=(0.5, 300.0, 1e39)), dtype)  # type: ignore[arg-type]  # what it takes of a frame
    assert make(Values(values=tuple(values)), dtype).shape == (len(values),)


LOOSE = Tolerance(rtol=1e-3, atol=1e-5)
FLOATS: tuple[DType, ...] = ("float16", "bfloat16", "float32", "float64")


def check(actual: Any, expected: Any, dtype: DType = "float32", tolerance: Tolerance = LOOSE) -> Comparison:
    a, e = np.array(actual, numpy_dtype(dtype)), np.array(expected, numpy_dtype(dtype))
    return compare(a, e, tolerance=tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_equal_themselves(dtype: DType) -> None:
    found = check([NAN, INF, -INF, 0.0, 1.0], [NAN, INF, -INF, -0.0, 1.0], dtype, EXACT)
    assert found.ok
    assert (found.error, found.ulp, found.tolerance_used) == (0, 0, 0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("actual", "expected"), [(1.0, NAN), (NAN, 1.0), (INF, -INF), (INF, NAN), (1.0, INF), (INF, 1.0), (0.0, NAN)]
)
def test_a_special_value_equals_nothing_else(actual: float, expected: float, dtype: DType) -> None:
    found = check([2.0, actual], [2.0, expected], dtype, Tolerance(rtol=1e9, atol=1e9))
    assert not found.ok
    assert found.worst == (1,)
    assert found.error == found.tolerance_used == INF


QUARTER = Tolerance(rtol=0.25, atol=0.25)
# The arguments of `check`, and what it finds: an error in ULP, how much of the tolerance is used, and so on.
FOUND: dict[str, tuple[tuple[Any, ...], dict[str, object]]] = {
    "at the limit": (([1.5, 0.25], [1.0, 0.0], "float32", QUARTER), {"tolerance_used": 1.0, "ok": True}),
    "beyond it": (([1.625], [1.0], "float32", QUARTER), {"ok": False}),
    **{f"ULP of {dtype}": (([1 + 3 * ulp, 0.0], [1.0, 0.0], dtype), {"ulp": 3, "error": 3 * ulp})
       for dtype, ulp in {"float16": 2**-10, "bfloat16": 2**-7, "float8_e4m3fn": 2**-3, "float32": 2**-23}.items()},
    "an error larger than all ULP": (([1e300], [1e-300], "float64"), {"error": 1e300, "ulp": INF}),
    "zero, which has no ULP": (([1e-6], [0.0]), {"ulp": 0}),
    "one of many": (([1.0, 3.0], [1.0, 2.0]), {"differing": 1, "worst": (1,)}),
    **{f"{value} and the next": (([value + 1], [value], "int64", EXACT), {"differing": 1, "error": 1, "ulp": 1})
       for value in (2**53, 2**63 - 2, -(2**63))},
    "a wide integer in the tolerance": (([2**53 + 1], [2**53], "int64", Tolerance(rtol=0.0, atol=1.0)), {"ok": True}),
    "unsigned integers do not wrap": (([0], [2**64 - 1], "uint64", EXACT), {"error": 2.0**64}),
    "equal bools": (([True, False], [True, False], "bool", EXACT), {"ok": True}),
    "a bool": ((True, False, "bool", EXACT), {"worst": ()}),
    "equal strings": (([*HARD], ["".join([*value]) for value in HARD], "string", EXACT), {"ok": True}),
    "a string with a NUL": ((["a", "b"], ["a", "b\0"], "string", Tolerance(rtol=1.0, atol=1.0)), {"worst": (1,)}),
    "no elements": (([], []), {"ok": True}),
    "other sizes without elements": (
        (np.zeros((2, 0)), np.zeros((2, 0, 1))), {"problem": "shape is (2, 0), expected (2, 0, 1)"}
    ),
    "another shape": (([1.0, 1.0], [[1.0, 1.0]]), {"problem": "shape is (2,), expected (1, 2)", "ok": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found(name: str) -> None:
    arguments, expected = FOUND[name]
    found = check(*arguments)
    assert {field: getattr(found, field) for field in expected} == expected


def test_another_dtype() -> None:
    one = np.ones((1, 2), np.float32)
    assert str(compare(one.astype(np.float64), one, tolerance=LOOSE)) == "dtype is float64, expected float32"


def test_the_message_names_the_worst_element() -> None:
    expected = np.full((4, 16), 0.1243, np.float32)
    actual = expected.copy()
    actual[0, 17 - 16], actual[3, 2], actual[1, 1] = 0.125, 0.1244999, 0.12430001
    found = compare(actual, expected, tolerance=LOOSE)
    assert str(found) == (
        "2 of 64 elements differ beyond rtol=0.001 atol=1e-05; worst at (0, 1): expected 0.1243, got 0.125"
    )
    assert str(check([1.0, 3.0], [1.0, 2.0])).startswith("1 of 2 elements differs beyond")
    assert str(check(["b\0"], ["b"], "string", EXACT)).endswith(r"worst at (0,): expected 'b', got 'b\x00'")
    assert mismatch("op-custom-case@cell", found, replay="do it") == f"op-custom-case@cell: {found}. Replay: do it"


PROJECT = Paths(ROOT / "tests/projects/strings")
SPEC = declare("upper(x: string) -> y: string like x", onnx="test::Upper", summary="Strings in upper case.")
UPPER = "import numpy as np\n\n\ndef upper(x):\n    return {}\n"
RIGHT = "np.array([v.upper() for v in x.ravel()], object).reshape(x.shape)"


def text(*values: str) -> arrays.Array:
    return np.array(values, object)


def operator(*cases: Values | Random) -> Operator:
    made = tuple(Case(name=f"case_{n}", inputs={"x": tensor}) for n, tensor in enumerate(cases))
    return Operator(spec=SPEC, models=(Model(name="one", cases=made),))


def checked(root: Path, of: Operator, reference: str = RIGHT) -> None:
    paths = with_reference(root, "upper", UPPER.format(reference))
    write_data.run(paths, of)
    cases.run(paths, of)


def test_a_data_set_keeps_every_string(tmp_path: Path) -> None:
    """onnx.numpy_helper drops the NULs at the end of a string."""
    written = DataSet(inputs={"x": text(*HARD).reshape(2, 3)}, outputs={"y": text()})
    dataset.write(tmp_path / "set", written)
    found = dataset.read(tmp_path / "set")
    assert found.inputs["x"].tolist() == written.inputs["x"].tolist()
    assert found.outputs["y"].dtype == object and found.outputs["y"].shape == (0,)
    assert same_bytes(found.inputs["x"], written.inputs["x"]) and not same_bytes(text("a"), text("b"))


@pytest.mark.parametrize(
    ("tensors", "reference", "message"),
    [
        ((Values(values=("", "")),), RIGHT, "output 'y' is an empty string everywhere in case case_0"),
        ((Values(values=("A", "B")),), RIGHT, "output 'y' equals input 'x' within rtol=0 atol=0 in case case_0"),
        ((Values(values=("a", "b")),), "np.full(x.shape, 'c', object)",
         "no case distinguishes input 'x' from empty strings and strings of one letter"),
    ],
    ids=["empty", "copy", "ignored"],
)  # fmt: skip
def test_cases_that_prove_nothing(tensors: tuple[Values, ...], reference: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        checked(tmp_path, operator(*tensors), reference)
    assert message in str(caught.value)
    checked(tmp_path / "more", operator(Values(values=("a", "B"))))


def test_every_kind_of_string_is_drawn(tmp_path: Path) -> None:
    found = load_operator(PROJECT, "join_texts")
    drawn = draw_models.collect(found, examples=200, home=tmp_path)
    given = [array for model in drawn for array in case_arrays(found.spec, model, model.cases[0])]
    flat = [value for array in given for value in array.ravel().tolist()]
    kinds = {
        "empty": any(value == "" for value in flat),
        "an embedded NUL": any("\0" in value.strip("\0") for value in flat),
        "a NUL at the end": any(value.endswith("\0") for value in flat),
        "four bytes": any("😀" in value for value in flat),
        "a combining character": any("\u0301" in value for value in flat),
        "long": any(len(value) > 400 for value in flat),
        "of a case": any("b\0c" in value for value in flat),
        "a scalar": any(array.shape == () for array in given),
        "no elements": any(array.size == 0 and array.ndim > 1 for array in given),
        "many": any(array.size > 1000 for array in given),
    }
    assert [kind for kind, there in kinds.items() if not there] == []


def test_another_dtype_in_place_of_strings_and_strings_in_place_of_numbers() -> None:
    made = load_operator(PROJECT, "fill_empty")
    found = [(str(one), one.call.inputs) for one in invalid_calls(made)]
    dtypes = [shown for shown, _ in found if shown.startswith("dtype")]
    assert dtypes == ["dtype of x: float16", "dtype of x: int32", "dtype of other: float16", "dtype of other: int32",
                      "dtype of other: string"]  # fmt: skip
    strings = next(inputs for shown, inputs in found if shown == "dtype of other: string")
    assert strings[1] is not None and not isinstance(strings[1], tuple) and strings[1].tolist() == ["1"]


RANGES = (
    (0, None), (-1, None), (-(2**63), None), (0, 2**31), (0, 2**32), (0, 2**32 + 1), (0, 2**28 + 1), (5, 2**30),
    (-(2**40), 2**41), (0, 1), (3, 11),
)  # fmt: skip


def numbers(low: int, end: int | None) -> list[int]:
    """Return the ends of a range, and numbers between."""
    last = (2**63 if end is None else end) - 1
    drawn = random.Random(0)
    return [low, last, *(drawn.randint(low, last) for _ in range(20))]


@pytest.mark.parametrize(("low", "end"), [(0, None), (0, 2**32)])
def test_the_words_are_those_of_mt19937(low: int, end: int | None) -> None:
    for number in numbers(low, end):
        state = generator_state(number, low, end)
        key = np.array(struct.unpack_from("<624Q", state, 24), np.uint32)
        twister = np.random.MT19937()
        twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 0}}
        first, second = (int(word) for word in twister.random_raw(2))
        assert ((first << 32 | second) % (2**63 if end is None else end)) == number


@pytest.mark.torch
@pytest.mark.parametrize(("low", "end"), RANGES)
def test_torch_gives_the_number(low: int, end: int | None) -> None:
    import torch

    for number in numbers(low, end):
        state = torch.frombuffer(bytearray(generator_state(number, low, end)), dtype=torch.uint8)
        generator = torch.Generator().set_state(state)
        made = torch.empty((), dtype=torch.int64).random_(low, end, generator=generator)
        assert made.item() == number
