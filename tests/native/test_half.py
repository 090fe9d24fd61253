"""Half and BFloat16 against NumPy's float16 and ml_dtypes' bfloat16: each of the 65,536 values, and many that round."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from opmatrix.data.arrays import rounded
from tests.support.building import compile_program

pytestmark = pytest.mark.compile

Array = NDArray[Any]
TYPES = {"Half": np.dtype(np.float16), "BFloat16": np.dtype(ml_dtypes.bfloat16)}

# Reads floats, doubles and whole numbers from files, and writes what each type makes of them.
PROGRAM = r"""
#include <cstdio>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "dtype.h"
#include "opmatrix/check.h"
#include "opmatrix/half.h"
#include "value_checks.h"

using namespace opmatrix;

template <typename From>
std::vector<From> read(const std::string& name) {
  std::vector<From> values;
  std::FILE* file = std::fopen(name.c_str(), "rb");
  From value;
  while (std::fread(&value, sizeof value, 1, file) == 1) values.push_back(value);
  std::fclose(file);
  return values;
}

template <typename To>
void write(const std::string& name, const std::vector<To>& values) {
  std::FILE* file = std::fopen(name.c_str(), "wb");
  std::fwrite(values.data(), sizeof(To), values.size(), file);
  std::fclose(file);
}

template <typename To, typename From>
void convert(const std::string& folder, const std::string& type, const std::string& from) {
  std::vector<To> made;
  for (const From value : read<From>(folder + from)) made.push_back(static_cast<To>(value));
  write(folder + type + "_of_" + from, made);
}

/// Applies the four operators that assign to neighbouring values of each type.
template <typename T, typename Number>
void assign(const std::string& folder, const std::string& type, const std::string& from) {
  const auto values = read<T>(folder + "bits");
  const auto others = read<Number>(folder + from);
  std::vector<T> made;
  for (std::size_t i = 0; i < values.size(); ++i) {
    T sum = values[i], difference = values[i], product = values[i], quotient = values[i];
    sum += others[i];
    difference -= others[i];
    product *= others[i];
    (quotient /= others[i]) -= 0;  // each returns its left side; -0 stays -0
    made.insert(made.end(), {sum, difference, product, quotient});
  }
  write(folder + type + "_assigned_" + from, made);
}

template <typename T>
void all(const std::string& folder, const std::string& type) {
  static_assert(sizeof(T) == 2 && alignof(T) == 2 && std::is_trivially_copyable_v<T> && std::is_trivial_v<T>);
  static_assert(std::is_same_v<compute_t<T>, float> && std::is_same_v<compute_t<double>, double>);
  static_assert(std::is_same_v<decltype(T(1) * T(2)), float> && !std::is_convertible_v<float, T>);
  static_assert(static_cast<float>(static_cast<T>(1)) == 1 && T(2.5F) < T(3.0F));
  std::vector<float> wide;
  for (const T value : read<T>(folder + "bits")) wide.push_back(value);
  write(folder + type + "_as_float", wide);
  convert<T, float>(folder, type, "floats");
  convert<T, double>(folder, type, "doubles");
  convert<T, std::int32_t>(folder, type, "wholes");
  assign<T, T>(folder, type, "others");
  assign<T, float>(folder, type, "floats");
  assign<T, double>(folder, type, "doubles");
  assign<T, std::int32_t>(folder, type, "wholes");
  using L = std::numeric_limits<T>;
  const T limits[] = {L::min(), L::max(), L::lowest(), L::epsilon(), L::denorm_min(), L::infinity(), L::quiet_NaN()};
  write(folder + type + "_limits", std::vector<T>(limits, limits + 7));
  const int digits[] = {L::digits, L::max_digits10, L::digits10, L::max_exponent, L::min_exponent};
  write(folder + type + "_digits", std::vector<int>(digits, digits + 5));

  // The checks of bindings: std::is_floating_point knows neither type.
  const T values[] = {static_cast<T>(0.25), static_cast<T>(0.5), L::infinity(), L::quiet_NaN()};
  const std::int64_t sizes[] = {4};
  const TensorView<const T> tensor{values, {sizes, 1}};
  const auto wrong = wrong_element(tensor, finite(between(0.0, NoLimit{})), AnyOrder{});
  const auto above = wrong_element(tensor, between(NoLimit{}, 0.25), AnyOrder{});
  std::printf("%s %s %lld %d %lld\n", type.c_str(), name(dtype_of<T>), static_cast<long long>(wrong.place()[0]),
              wrong.value_is_right(), static_cast<long long>(above.place()[0]));
  try {
    KERNEL_CHECK(values[0] > values[1], "op: must be greater, got ", values[0], " and ", above.value());
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
}

int main(int, char** arguments) {
  const std::string folder = std::string(arguments[1]) + "/";
  all<Half>(folder, "Half");
  all<BFloat16>(folder, "BFloat16");
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("half")
    every = np.arange(1 << 16, dtype=np.uint16)
    inputs = {"bits": every, "floats": floats(), "doubles": doubles(), "wholes": wholes(), "others": others()}
    for name, array in inputs.items():
        array.tofile(made / name)
    program = compile_program(PROGRAM, made, "-O2", "-fsanitize=undefined")
    done = subprocess.run([program, made], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    (made / "printed").write_text(done.stdout)
    return made


def floats() -> Array:
    """Return floats of any bits, the midpoints between neighbouring values of both types, and floats near these."""
    random = np.random.Generator(np.random.PCG64(16)).integers(0, 1 << 32, 1 << 18, dtype=np.uint64)
    near = [random.astype(np.uint32)]
    every = np.arange(1 << 16, dtype=np.uint16)
    for dtype in TYPES.values():
        values = every.view(dtype).astype(np.float32)
        with np.errstate(all="ignore"):
            middle = (values.astype(np.float64) + np.roll(values, -1)) / 2
            bits = middle.astype(np.float32).view(np.uint32)
        near += [bits, bits - 1, bits + 1]
    return np.concatenate(near).view(np.float32)


@np.errstate(all="ignore")
def doubles() -> Array:
    """Return the floats moved by less than a float has digits for, which decides ties, and numbers beyond a float."""
    wide = floats().astype(np.float64)
    moved = [wide, wide * (1 + 2.0**-40), wide * (1 - 2.0**-40), np.nextafter(wide, np.inf)]
    return np.concatenate([*moved, np.array([1e300, -1e300, 5e-324, -0.0, 3.5e38, 1e-46])])


def wholes() -> Array:
    return np.concatenate([np.arange(-70000, 70001), [2**31 - 1, -(2**31), 2**24 + 1]]).astype(np.int32)


def others() -> Array:
    """Return the bits of a right side for each value."""
    return np.random.Generator(np.random.PCG64(17)).permutation(1 << 16).astype(np.uint16)


def nearest(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return the nearest value of `dtype` to each double, ties to even, found by comparing distances: no cast."""
    every = np.arange(1 << 16, dtype=np.uint16)
    size = every[every < 0x8000].view(dtype)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        size = size[np.isfinite(size)].astype(np.float64)
    size = np.append(size, 2 * size[-1] - size[-2])  # the value after the largest, from which rounding gives infinity
    magnitude = np.abs(values)
    above = np.clip(np.searchsorted(size, magnitude), 1, len(size) - 1)
    down, up = magnitude - size[above - 1], size[above] - magnitude
    higher = (up < down) | ((up == down) & (above % 2 == 0))
    index = np.where(np.isnan(values), 0x7FFF, np.where(higher, above, above - 1)).astype(np.uint16)
    return (index | np.where(np.signbit(values), 0x8000, 0).astype(np.uint16)).view(dtype)


def same(actual: Array, expected: Array) -> Array:
    """Return whether values have equal bits, or are both NaN."""
    equal: Array = (actual.view(np.uint16) == expected.view(np.uint16)) | (np.isnan(actual) & np.isnan(expected))
    return equal


@np.errstate(all="ignore")
@pytest.mark.parametrize("name", TYPES)
def test_each_value_becomes_the_float_of_numpy(folder: Path, name: str) -> None:
    found = np.fromfile(folder / f"{name}_as_float", np.float32)
    expected = np.fromfile(folder / "bits", TYPES[name]).astype(np.float32)
    assert len(found) == 1 << 16 and int(np.isnan(expected).sum()) > 200
    assert bool(((found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))).all())


@pytest.mark.parametrize("name", TYPES)
def test_each_float_is_rounded_as_by_numpy(folder: Path, name: str) -> None:
    with np.errstate(all="ignore"):
        expected = np.fromfile(folder / "floats", np.float32).astype(TYPES[name])
    assert bool(same(np.fromfile(folder / f"{name}_of_floats", TYPES[name]), expected).all())


@pytest.mark.parametrize("name", TYPES)
def test_each_double_is_rounded_once(folder: Path, name: str) -> None:
    values, found = np.fromfile(folder / "doubles"), np.fromfile(folder / f"{name}_of_doubles", TYPES[name])
    expected = nearest(values, TYPES[name])
    assert bool(same(found, expected).all())
    with np.errstate(all="ignore"):
        twice = values.astype(np.float32).astype(TYPES[name])
        in_python = rounded(values, TYPES[name])
    assert not bool(same(found, twice).all())  # what ml_dtypes does
    assert bool(same(in_python, expected).all())  # so references are rounded as kernels are


@pytest.mark.parametrize("name", TYPES)
def test_each_whole_number_is_rounded(folder: Path, name: str) -> None:
    expected = nearest(np.fromfile(folder / "wholes", np.int32).astype(np.float64), TYPES[name])
    assert bool(same(np.fromfile(folder / f"{name}_of_wholes", TYPES[name]), expected).all())


@np.errstate(all="ignore")
@pytest.mark.parametrize(
    ("right", "computed"),
    [("others", np.float32), ("floats", np.float32), ("doubles", np.float64), ("wholes", np.float32)],
)
@pytest.mark.parametrize("name", TYPES)
def test_operators_that_assign(folder: Path, name: str, right: str, computed: type[Any]) -> None:
    """They compute as float, or as double with a double, and round once."""
    stored = {"others": TYPES[name], "floats": np.float32, "doubles": np.float64, "wholes": np.int32}[right]
    a = np.fromfile(folder / "bits", TYPES[name]).astype(computed)
    b = np.fromfile(folder / right, stored)[: len(a)].astype(computed)
    results = np.stack([a + b, a - b, a * b, a / b], axis=1).ravel()
    found = np.fromfile(folder / f"{name}_assigned_{right}", TYPES[name])
    assert bool(same(found, nearest(results.astype(np.float64), TYPES[name])).all())


@pytest.mark.parametrize("name", TYPES)
def test_numeric_limits(folder: Path, name: str) -> None:
    found, known = np.fromfile(folder / f"{name}_limits", TYPES[name]), ml_dtypes.finfo(TYPES[name])
    expected = [known.tiny, known.max, known.min, known.eps, known.smallest_subnormal, np.inf, np.nan]
    assert bool(same(found, np.array(expected, TYPES[name])).all())
    digits = np.fromfile(folder / f"{name}_digits", np.int32).tolist()
    assert digits[0] == known.nmant + 1 and digits[3:] == [known.maxexp, known.minexp + 1]
    assert digits[1] == int(np.ceil(1 + digits[0] * np.log10(2))) and digits[2] == int((digits[0] - 1) * np.log10(2))


def test_checks_and_messages(folder: Path) -> None:
    assert (folder / "printed").read_text().splitlines() == [
        "Half float16 2 0 1",
        "op: must be greater, got 0.25 and 0.5",
        "BFloat16 bfloat16 2 0 1",
        "op: must be greater, got 0.25 and 0.5",
    ]
