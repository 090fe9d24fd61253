"""The kernel of group_norm alone, compared with the formula in NumPy: no framework, no binding."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.building import compile_program

pytestmark = pytest.mark.compile

Array = np.ndarray[Any, np.dtype[Any]]
Kernel = Callable[..., Array]

SOURCE = r"""
#include <thread>
#include <vector>
#include "kernel_threads.h"
#include "group_norm/kernel.h"

using namespace opmatrix;

class Two final : public Threads {
 public:
  void run(std::int64_t begin, std::int64_t end, std::int64_t, Work work, void* context) override {
    const std::int64_t middle = begin + (end - begin) / 3;
    std::thread other([=] { if (begin < middle) work(context, begin, middle); });
    work(context, middle, end);
    other.join();
  }
};

template <typename T>
const char* run(const T* x, const std::int64_t* sizes, std::int64_t rank, float groups, const T* scale, const T* bias,
                float epsilon, T* y, bool threads) {
  static std::string error;
  const std::int64_t one[] = {1};
  const Sizes channels{sizes + 1, 1};
  Two two;
  const UseThreads use(threads ? &two : nullptr);
  try {
    group_norm::group_norm<T>({x, {sizes, rank}}, {&groups, {one, 1}}, {scale, channels}, {bias, channels}, epsilon,
                              {y, {sizes, rank}});
  } catch (const std::exception& caught) {
    error = caught.what();
    return error.c_str();
  }
  return "";
}

#define EXPORT(name, T)                                                                                          \
  extern "C" const char* name(const T* x, const std::int64_t* sizes, std::int64_t rank, float groups, const T* s, \
                              const T* b, float epsilon, T* y, bool threads) {                                   \
    return run<T>(x, sizes, rank, groups, s, b, epsilon, y, threads);                                            \
  }
EXPORT(float32, float)
EXPORT(float64, double)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    path = compile_program(f"#include <string>\n{SOURCE}", tmp_path_factory.mktemp("kernel"), "-O3", "-shared", "-fPIC")
    library = ctypes.CDLL(str(path))

    def call(x: Array, groups: float, scale: Array, bias: Array, epsilon: float = 1e-5, threads: bool = False) -> Array:
        x, scale, bias = (np.ascontiguousarray(a) for a in (x, scale, bias))
        y = np.full_like(x, 7)
        function = getattr(library, str(x.dtype))
        function.restype = ctypes.c_char_p
        sizes = np.array(x.shape, np.int64)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, sizes, scale, bias, y)]
        error = function(
            pointers[0], pointers[1], ctypes.c_int64(x.ndim), ctypes.c_float(groups), pointers[2], pointers[3],
            ctypes.c_float(epsilon), pointers[4], ctypes.c_bool(threads),
        )  # fmt: skip
        if error:
            raise ValueError(error.decode())
        return y

    return call


def formula(x: Array, groups: int, scale: Array, bias: Array, epsilon: float = 1e-5) -> Array:
    """The definition, in numpy.longdouble."""
    epsilon = np.longdouble(np.float32(epsilon))
    flat = x.astype(np.longdouble).reshape(x.shape[0], groups, -1)
    with np.errstate(all="ignore"):
        centered = flat - flat.mean(axis=-1, keepdims=True)
        normal = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + epsilon)
    across = (1, x.shape[1], *(1 for _ in x.shape[2:]))
    return np.asarray(normal.reshape(x.shape) * scale.reshape(across) + bias.reshape(across))


def some(shape: tuple[int, ...], dtype: str, mean: float = 0.0, deviation: float = 1.0) -> tuple[Array, Array, Array]:
    random = np.random.default_rng([*shape, int(mean)])
    x = random.normal(mean, deviation, shape).astype(dtype)
    return x, random.normal(1, 0.5, shape[1]).astype(dtype), random.normal(size=shape[1]).astype(dtype)


SHAPES = [((1, 1, 1), 1), ((2, 6), 3), ((3, 2, 1, 2), 2), ((2, 6, 5, 7), 3), ((1, 4, 31), 1), ((2, 5, 17, 3, 1), 5)]
DTYPES = {"float32": 2e-6, "float64": 1e-14}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "groups"), SHAPES, ids=str)
def test_the_kernel_computes_the_formula(kernel: Kernel, shape: tuple[int, ...], groups: int, dtype: str) -> None:
    x, scale, bias = some(shape, dtype)
    expected = formula(x, groups, scale, bias)
    np.testing.assert_allclose(kernel(x, groups, scale, bias), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float64", 2e-12)])
@pytest.mark.parametrize("shape", [(2, 8, 56, 56), (1, 4, 3)], ids=str)
def test_a_large_mean_loses_no_accuracy(kernel: Kernel, shape: tuple[int, ...], dtype: str, tolerance: float) -> None:
    """torch's own group_norm is off by 1e-4 here, a float sum of squares by 0.1."""
    x, scale, bias = some(shape, dtype, mean=1000)
    assert np.abs(kernel(x, 4, scale, bias) - formula(x, 4, scale, bias)).max() < tolerance


def test_a_distant_first_element_loses_no_accuracy(kernel: Kernel) -> None:
    x, scale, bias = some((1, 2, 4096), "float32")
    x[0, 0, 0] = 1e6
    np.testing.assert_allclose(kernel(x, 1, scale, bias), formula(x, 1, scale, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_squares_do_not_overflow_or_vanish(kernel: Kernel, size: float) -> None:
    x, scale, bias = some((2, 4, 33), "float32", deviation=size)
    expected = formula(x, 2, scale, bias, epsilon=0)
    np.testing.assert_allclose(kernel(x, 2, scale, bias, epsilon=0), expected, rtol=1e-5, atol=1e-5)


def test_equal_elements_have_no_variance(kernel: Kernel) -> None:
    x, scale, bias = some((1, 2, 50), "float32")
    y = kernel(np.full_like(x, 0.1), 1, scale, bias)
    np.testing.assert_array_equal(y, np.broadcast_to(bias.reshape(1, 2, 1), x.shape))


def test_an_infinite_bias_does_not_change_the_other_channels(kernel: Kernel) -> None:
    """Its group takes another path, in which the property test found an error of 1e-10 at a mean of 1e6 deviations."""
    x, scale, bias = some((1, 2, 30), "float64", mean=1e6)
    bias[1] = np.inf
    expected = formula(x, 1, scale, bias)
    np.testing.assert_allclose(kernel(x, 1, scale, bias)[0, 0], expected[0, 0], rtol=0, atol=2e-11)


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_equal_elements_of_any_size_give_the_bias(kernel: Kernel, size: float) -> None:
    """In units in which the elements can be squared, epsilon vanishes. The property test found it."""
    bias = np.array([1.0, np.inf])
    y = kernel(np.full((1, 2, 3), size), 1, np.ones(2), bias)
    np.testing.assert_array_equal(y, np.broadcast_to(bias.reshape(1, 2, 1), y.shape))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("at", [0, 9, 34])
def test_nan_and_infinities_stay_in_their_group(kernel: Kernel, special: float, dtype: str, at: int) -> None:
    x, scale, bias = some((2, 4, 35), dtype)
    x[1, 2, at] = special
    y = kernel(x, 2, scale, bias)
    assert np.isnan(y[1, 2:]).all()
    y[1, 2:] = 0
    assert np.isfinite(y).all()


@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 4, 0), (2, 0, 3), (0, 0)], ids=str)
def test_empty_tensors(kernel: Kernel, shape: tuple[int, ...]) -> None:
    x, scale, bias = some(shape, "float32")
    assert kernel(x, 2, scale, bias).shape == shape


@pytest.mark.parametrize("shape", [(5, 32, 31, 17), (3, 6), (1, 2, 100000)], ids=str)
def test_the_number_of_threads_does_not_change_the_result(kernel: Kernel, shape: tuple[int, ...]) -> None:
    x, scale, bias = some(shape, "float32")
    one, two = (kernel(x, 2, scale, bias, threads=threads) for threads in (False, True))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 4, 416, 512), (5, 4, 417, 513)], ids=["aligned", "not aligned"])
def test_a_large_tensor_is_stored_past_the_cache_with_equal_results(
    kernel: Kernel, shape: tuple[int, ...], dtype: str
) -> None:
    """From 8 MiB on; the parts, of two channels, have at most 3.3 MiB."""
    x, scale, bias = some(shape, "float32")
    x, scale, bias = (a.astype(dtype) for a in (x, scale, bias))
    whole = kernel(x, 2, scale, bias, threads=True)
    for n in range(shape[0]):
        parts = [kernel(x[n : n + 1, c : c + 2], 1, scale[c : c + 2], bias[c : c + 2]) for c in (0, 2)]
        np.testing.assert_array_equal(whole[n : n + 1], np.concatenate(parts, axis=1))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (4, "group_norm: num_groups must divide the 6 channels of x, got 4"),
        (12, "group_norm: num_groups must divide the 6 channels of x, got 12"),
        (np.inf, "group_norm: num_groups must divide the 6 channels of x, got inf"),
        (1e38, "group_norm: num_groups must divide the 6 channels of x, got 1e+38"),
        (0, "group_norm: num_groups must be a whole number greater than 0, got 0"),
        (-2, "group_norm: num_groups must be a whole number greater than 0, got -2"),
        (1.5, "group_norm: num_groups must be a whole number greater than 0, got 1.5"),
        (np.nan, "group_norm: num_groups must be a whole number greater than 0, got nan"),
    ],
)
def test_an_invalid_number_of_groups(kernel: Kernel, groups: float, message: str) -> None:
    x, scale, bias = some((2, 6, 5), "float32")
    with pytest.raises(ValueError) as caught:
        kernel(x, groups, scale, bias)
    assert str(caught.value) == message
