"""The four float8 against those of ml_dtypes: each of the 256 values, and many numbers that round to them. Int4 and
UInt4 against those of ml_dtypes: each of the 16 values, and each byte and whole number that becomes one.
"""

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
TYPES = {
    "Float8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "Float8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "Float8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "Float8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
}

# Reads floats and doubles from files, and writes what each type makes of them.
PROGRAM = r"""
#include <cstdio>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "dtype.h"
#include "opmatrix/check.h"
#include "opmatrix/float8.h"
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

template <typename T>
void all(const std::string& folder, const std::string& type) {
  static_assert(sizeof(T) == 1 && alignof(T) == 1 && std::is_trivially_copyable_v<T> && std::is_trivial_v<T>);
  static_assert(std::is_same_v<compute_t<T>, float> && !std::is_convertible_v<float, T>);
  static_assert(std::is_same_v<decltype(T(1) * T(2)), float> && static_cast<float>(static_cast<T>(1)) == 1);
  static_assert(T(2.5F) < T(3.0F) && static_cast<float>(static_cast<T>(Half(0.5F))) == 0.5F);
  std::vector<float> wide;
  for (const T value : read<T>(folder + "bits")) wide.push_back(value);
  write(folder + type + "_as_float", wide);
  convert<T, float>(folder, type, "floats");
  convert<T, double>(folder, type, "doubles");
  using L = std::numeric_limits<T>;
  const T limits[] = {L::min(), L::max(), L::lowest(), L::epsilon(), L::denorm_min(), L::quiet_NaN(), L::infinity()};
  write(folder + type + "_limits", std::vector<T>(limits, limits + 7));
  const int digits[] = {L::digits, L::max_digits10, L::digits10, L::max_exponent, L::min_exponent, L::has_infinity};
  write(folder + type + "_digits", std::vector<int>(digits, digits + 6));
  const T values[] = {static_cast<T>(0.25), static_cast<T>(0.5), L::quiet_NaN()};
  const std::int64_t sizes[] = {3};
  const TensorView<const T> tensor{values, {sizes, 1}};
  const auto wrong = wrong_element(tensor, finite(between(0.0, NoLimit{})), AnyOrder{});
  std::printf("%s %s %lld\n", type.c_str(), name(dtype_of<T>), static_cast<long long>(wrong.place()[0]));
  try {
    KERNEL_CHECK(values[0] > values[1], "op: must be greater, got ", values[0], " and ", wrong.value());
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
}

int main(int, char** arguments) {
  const std::string folder = std::string(arguments[1]) + "/";
  all<Float8E4M3FN>(folder, "Float8E4M3FN");
  all<Float8E5M2>(folder, "Float8E5M2");
  all<Float8E4M3FNUZ>(folder, "Float8E4M3FNUZ");
  all<Float8E5M2FNUZ>(folder, "Float8E5M2FNUZ");
  try {
    check_dtype("op", "x", DType::string, {DType::float16, DType::bfloat16, DType::float32, DType::float64,
      DType::float8_e4m3fn, DType::float8_e5m2, DType::float8_e4m3fnuz, DType::float8_e5m2fnuz, DType::int8,
      DType::int16, DType::int32, DType::int64, DType::uint8, DType::uint16, DType::uint32, DType::uint64,
      DType::boolean});
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("float8")
    for name, array in {"bits": np.arange(256, dtype=np.uint8), "floats": floats(), "doubles": doubles()}.items():
        array.tofile(made / name)
    program = compile_program(PROGRAM, made, "-O2", "-fsanitize=undefined")
    done = subprocess.run([program, made], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    (made / "printed").write_text(done.stdout)
    return made


@np.errstate(all="ignore")
def floats() -> Array:
    """Return floats of any bits, and the values of all types, the midpoints between neighbours and floats near both."""
    bits = [np.random.Generator(np.random.PCG64(8)).integers(0, 1 << 32, 1 << 18, dtype=np.uint64).astype(np.uint32)]
    for dtype in TYPES.values():
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
        for exact in (values, (values + np.roll(values, -1)) / 2, 2 * values):
            found = exact.astype(np.float32).view(np.uint32)
            bits += [found, found - 1, found + 1]
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 464.0, 480.0, 61440.0, 65536.0, 248.0, 1e-45], np.float32)
    return np.concatenate([*bits, ends.view(np.uint32)]).view(np.float32)


@np.errstate(all="ignore")
def doubles() -> Array:
    """Return the floats moved by less than a float has digits for, which decides ties, and numbers beyond a float."""
    wide = floats().astype(np.float64)
    moved = [wide, wide * (1 + 2.0**-40), wide * (1 - 2.0**-40)]
    return np.concatenate([*moved, np.array([1e300, -1e300, 5e-324, -0.0, 3.5e38, 1e-46])])


def nearest(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return the nearest value of `dtype` to each double, ties to even, found by comparing distances: no cast."""
    codes = np.arange(128, dtype=np.uint8)
    size = codes.view(dtype).astype(np.float64)
    size = size[np.isfinite(size)]
    beyond = len(size)  # the code after the largest; in fnuz that is the NaN
    size = np.append(size, 2 * size[-1] - size[-2])
    magnitude = np.abs(values)
    above = np.clip(np.searchsorted(size, magnitude), 1, beyond)
    down, up = magnitude - size[above - 1], size[above] - magnitude
    higher = (up < down) | ((up == down) & (above % 2 == 0))
    index = np.where(np.isnan(values), 0x80 if beyond == 128 else 0x7F, np.where(higher, above, above - 1))
    sign = np.where(np.signbit(values) & ~((beyond == 128) & np.isin(index, (0, 128))), 0x80, 0)
    return (index | sign).astype(np.uint8).view(dtype)


def same(actual: Array, expected: Array) -> bool:
    """Return whether values have equal bits, or are both NaN."""
    equal = (actual.view(np.uint8) == expected.view(np.uint8)) | (np.isnan(actual) & np.isnan(expected))
    return bool(equal.all())


@pytest.mark.parametrize("name", TYPES)
def test_each_value_becomes_the_float_of_ml_dtypes(folder: Path, name: str) -> None:
    found = np.fromfile(folder / f"{name}_as_float", np.float32)
    expected = np.fromfile(folder / "bits", np.uint8).view(TYPES[name]).astype(np.float32)
    assert len(found) == 256 and int(np.isnan(expected).sum()) in (1, 2, 6)
    assert bool(((found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))).all())


@pytest.mark.parametrize("name", TYPES)
def test_each_float_is_rounded_as_by_ml_dtypes(folder: Path, name: str) -> None:
    with np.errstate(all="ignore"):
        expected = np.fromfile(folder / "floats", np.float32).astype(TYPES[name])
    assert same(np.fromfile(folder / f"{name}_of_floats", np.uint8).view(TYPES[name]), expected)


@pytest.mark.parametrize("name", TYPES)
def test_each_double_is_rounded_once(folder: Path, name: str) -> None:
    values, found = np.fromfile(folder / "doubles"), np.fromfile(folder / f"{name}_of_doubles", np.uint8)
    expected = nearest(values, TYPES[name])
    assert same(found.view(TYPES[name]), expected)
    with np.errstate(all="ignore"):
        twice = values.astype(np.float32).astype(TYPES[name])
        in_python = rounded(values, TYPES[name])
    assert not same(found.view(TYPES[name]), twice)
    assert same(in_python, expected)  # so references are rounded as kernels are


@pytest.mark.parametrize("name", TYPES)
def test_numeric_limits(folder: Path, name: str) -> None:
    known: Any = ml_dtypes.finfo(TYPES[name])
    found = np.fromfile(folder / f"{name}_limits", np.uint8).view(TYPES[name])
    with np.errstate(all="ignore"):
        expected = [known.tiny, known.max, known.min, known.eps, known.smallest_subnormal, np.nan, np.inf]
        assert same(found, np.array(expected, np.float32).astype(TYPES[name]))
    digits = np.fromfile(folder / f"{name}_digits", np.int32).tolist()
    assert digits[0] == known.nmant + 1 and digits[3:] == [known.maxexp, known.minexp + 1, name == "Float8E5M2"]
    assert digits[1] == int(np.ceil(1 + digits[0] * np.log10(2))) and digits[2] == int((digits[0] - 1) * np.log10(2))


def test_checks_and_messages(folder: Path) -> None:
    lines = (folder / "printed").read_text().splitlines()
    assert lines[:-1] == [
        line for name, dtype in TYPES.items() for line in (f"{name} {dtype} 2", "op: must be greater, got 0.25 and nan")
    ]
    assert lines[-1].endswith("uint32, uint64 or bool, got string") and "float8_e5m2fnuz, int8" in lines[-1]


FOUR_BITS = {"Int4": np.dtype(ml_dtypes.int4), "UInt4": np.dtype(ml_dtypes.uint4)}

FOUR_BITS_PROGRAM = r"""
#include <algorithm>
#include <cstdio>
#include <limits>
#include <type_traits>

#include "dtype.h"
#include "opmatrix/check.h"
#include "opmatrix/int4.h"
#include "value_checks.h"

using namespace opmatrix;

template <typename T>
void all(const char* type) {
  using L = std::numeric_limits<T>;
  static_assert(sizeof(T) == 1 && alignof(T) == 1 && std::is_trivially_copyable_v<T> && std::is_trivial_v<T>);
  static_assert(std::is_same_v<compute_t<T>, int> && !std::is_convertible_v<int, T> && T{} == 0 && T(3) < T(4));
  static_assert(std::is_same_v<decltype(T(1) * T(2)), int> && T(2) * T(7) == 14 && -T(7) == -7);
  static_assert(L::is_specialized && L::is_integer && L::is_exact && !L::has_infinity && L::min() == L::lowest());
  std::printf("%s %s\n", type, name(dtype_of<T>));
  for (int n = -300; n <= 300; ++n) std::printf("%d ", static_cast<int>(static_cast<T>(n)));
  std::puts("");
  for (int n = 0; n < 256; ++n) {
    const auto byte = static_cast<unsigned char>(n);
    T value;
    __builtin_memcpy(&value, &byte, 1);
    std::printf("%d ", static_cast<int>(value));
  }
  std::puts("");
  std::printf("%d %d %d %d %d\n", +L::min(), +L::max(), L::digits, L::digits10, L::is_signed);
  std::printf("%d %d\n", +static_cast<T>(3.9F), +static_cast<T>(std::clamp<int>(99, L::lowest(), L::max())));
  const T values[] = {T(1), T(6), T(7)};
  const std::int64_t sizes[] = {3};
  const TensorView<const T> tensor{values, {sizes, 1}};
  const auto wrong = wrong_element(tensor, between(0, 6), AnyOrder{});
  const auto listed = wrong_element(tensor, one_of(1, 7), AnyOrder{});
  try {
    KERNEL_CHECK(values[0] > values[1], "got ", wrong.value(), " at ", wrong.place(), ", ", listed.value());
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
}

int main() {
  all<Int4>("Int4");
  all<UInt4>("UInt4");
}
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    program = compile_program(FOUR_BITS_PROGRAM, Path(tmp_path_factory.mktemp("int4")), "-O2", "-fsanitize=undefined")
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    each = len(lines) // 2
    return {"Int4": lines[:each], "UInt4": lines[each:]}


@pytest.mark.parametrize("name", FOUR_BITS)
def test_whole_numbers_and_bytes_become_the_values_of_ml_dtypes(printed: dict[str, list[str]], name: str) -> None:
    dtype = FOUR_BITS[name]
    head, numbers, of_bytes, *_ = printed[name]
    assert head == f"{name} {dtype}"
    assert [*map(int, numbers.split())] == np.arange(-300, 301).astype(dtype).astype(int).tolist()
    assert [*map(int, of_bytes.split())] == np.arange(256).astype(dtype).astype(int).tolist()


@pytest.mark.parametrize("name", FOUR_BITS)
def test_limits_and_checks(printed: dict[str, list[str]], name: str) -> None:
    known: Any = ml_dtypes.iinfo(FOUR_BITS[name])  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it
    digits = {"Int4": "3 0 1", "UInt4": "4 1 0"}[name]
    assert printed[name][3:] == [
        f"{known.min} {known.max} {digits}", f"3 {known.max}", "got 7 at (2,), 6",
    ]  # fmt: skip
