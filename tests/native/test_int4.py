"""Int4 and UInt4 against those of ml_dtypes: each of the 16 values, and each byte and whole number that becomes one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support.building import compile_program

pytestmark = pytest.mark.compile

TYPES = {"Int4": np.dtype(ml_dtypes.int4), "UInt4": np.dtype(ml_dtypes.uint4)}

PROGRAM = r"""
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
    program = compile_program(PROGRAM, Path(tmp_path_factory.mktemp("int4")), "-O2", "-fsanitize=undefined")
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    each = len(lines) // 2
    return {"Int4": lines[:each], "UInt4": lines[each:]}


@pytest.mark.parametrize("name", TYPES)
def test_whole_numbers_and_bytes_become_the_values_of_ml_dtypes(printed: dict[str, list[str]], name: str) -> None:
    dtype = TYPES[name]
    head, numbers, of_bytes, *_ = printed[name]
    assert head == f"{name} {dtype}"
    assert [*map(int, numbers.split())] == np.arange(-300, 301).astype(dtype).astype(int).tolist()
    assert [*map(int, of_bytes.split())] == np.arange(256).astype(dtype).astype(int).tolist()


@pytest.mark.parametrize("name", TYPES)
def test_limits_and_checks(printed: dict[str, list[str]], name: str) -> None:
    known: Any = ml_dtypes.iinfo(TYPES[name])  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it
    digits = {"Int4": "3 0 1", "UInt4": "4 1 0"}[name]
    assert printed[name][3:] == [
        f"{known.min} {known.max} {digits}", f"3 {known.max}", "got 7 at (2,), 6",
    ]  # fmt: skip
