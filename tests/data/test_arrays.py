"""Arrays made from the tensors of a case."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data.arrays import array, dtype_name, numpy_dtype, seed_of
from opmatrix.project.dtypes import DTYPES
from opmatrix.search.draw_values import few
from opmatrix.spec import DType, Nested, Random, Tensor, Values

SEED = "op/case/x"


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
    tensor = Random(shape=(3, 4))
    np.testing.assert_array_equal(make(tensor), make(tensor))
    assert (make(tensor) != array(tensor, "float32", seed_of=seed_of("op", "other", "x"))).all()


def test_the_layout_does_not_change_values() -> None:
    np.testing.assert_array_equal(make(Random(shape=(3, 4))), make(Random(shape=(3, 4), layout="transposed")))
    assert make(Random(shape=(3, 4), layout="transposed")).flags.c_contiguous


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_mean_and_deviation(dtype: DType) -> None:
    made = make(Random(shape=(1000,), mean=50.0, deviation=2.0), dtype).astype(np.float64)
    assert made.mean() == pytest.approx(50, abs=0.3)
    assert made.std() == pytest.approx(2, abs=0.2)


def test_random_integers_are_whole_and_random_bools_are_mixed() -> None:
    assert set(make(Random(shape=(200,), mean=5.0), "int8")) > {4, 5, 6}
    assert set(make(Random(shape=(20,)), "bool")) == {True, False}


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_tensors(shape: tuple[int, ...]) -> None:
    assert make(Random(shape=shape)).shape == shape
    assert make(Values(values=())).shape == (0,)
    assert make(Values(values=3.0)).shape == ()


def test_specials_are_at_flat_indices() -> None:
    made = make(Random(shape=(2, 3), specials={1: math.nan, 5: -math.inf}))
    assert math.isnan(made[0, 1])
    assert made[1, 2] == -math.inf
    assert np.isfinite(made.ravel()[[0, 2, 3, 4]]).all()


@pytest.mark.parametrize(
    ("dtype", "values"),
    [("int64", (-(2**63), 2**63 - 1)), ("uint64", (0, 2**64 - 1)), ("int64", (2**53 + 1, 0))],
)
def test_the_limits_of_wide_integers_are_exact(dtype: DType, values: Nested) -> None:
    assert tuple(int(v) for v in make(Values(values=values), dtype)) == values


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
    ],
)
def test_an_invalid_tensor_is_refused(tensor: Tensor, dtype: DType, message: str) -> None:
    with pytest.raises(DataError) as caught:
        make(tensor, dtype)
    assert message in str(caught.value)


def test_random_values_of_an_unsigned_dtype_are_absolute_values() -> None:
    signed, unsigned = (make(Random(shape=(50,), deviation=3.0), dtype) for dtype in ("int32", "uint8"))
    assert (signed < 0).any() and np.array_equal(unsigned, np.abs(signed))
    large = make(Random(shape=(50,), mean=100.0, deviation=3.0), "uint16")
    assert np.array_equal(large, make(Random(shape=(50,), mean=100.0, deviation=3.0), "int32"))


def test_infinities_fit_every_float_dtype() -> None:
    assert np.isinf(make(Values(values=(math.inf, -math.inf)), "bfloat16").astype(np.float32)).all()


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in ("bool", "string")])
def test_each_value_that_ties_are_drawn_of_fits_its_dtype(dtype: DType) -> None:
    """float8_e4m3fn has no infinity: a new operator with such an input, `doit new --from-onnx`, failed."""
    values = few(SimpleNamespace(numbers=(0.5, 300.0, 1e39)), dtype)  # type: ignore[arg-type]  # what it takes of a frame
    assert make(Values(values=tuple(values)), dtype).shape == (len(values),)
