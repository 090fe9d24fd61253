"""opmatrix/simd.h and simd_math.h at each level of the processor, compared with C++, the C library and NumPy.

The programs are compiled for every level, with all warnings as errors. Where the processor lacks the instructions of a
level, they run on an emulated one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native.test_half import TYPES, doubles, floats, nearest, same
from tests.support import emulated_processor
from tests.support.projects import ROOT

pytestmark = pytest.mark.compile

Array = NDArray[Any]
INCLUDE = ROOT / "native/include"
FLAGS = (
    "-std=c++20", "-O2", "-ftree-vectorize", "-ffp-contract=fast", "-fno-math-errno",
    "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-Wno-psabi",
)  # fmt: skip
# What each level adds that the headers use, as /proc/cpuinfo names it.
LEVELS = {2: {"sse4_1"}, 3: {"avx2", "fma", "f16c"}, 4: {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}}
COMPILERS = (
    "g++",
    pytest.param(
        "clang++",
        marks=[
            pytest.mark.clang,
            pytest.mark.skipif(shutil.which("clang++") is None, reason="no clang++ on PATH; Debian: apt install clang"),
        ],
    ),
)
FUNCTIONS = ("exp", "log", "erf", "tanh")


def missing(level: int) -> set[str]:
    """Return what the processor lacks to run the program of a level."""
    flags = re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert flags
    return set().union(*(LEVELS[needed] for needed in LEVELS if needed <= level)) - {*flags[1].split()}


def run(source: Path, program: Path, compiler: str, level: int, *arguments: str) -> str:
    """Compile a program and return what it prints, on an emulated processor where this one cannot run it."""
    of_level = (f"-march=x86-64-v{level}", f"-DOPMATRIX_CPU_LEVEL={level}", "-static")
    command = [compiler, *FLAGS, *of_level, f"-I{INCLUDE}", str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    emulator = emulated_processor.COMMAND if missing(level) else ()
    done = subprocess.run([*emulator, program, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def inputs() -> Mapping[str, Array]:
    return {"bits": np.arange(1 << 16, dtype=np.uint16), "floats": floats(), "doubles": doubles()}


def of_program(folder: Path, name: str, dtype: np.dtype[Any] | type[Any], shape_of: Array) -> Array:
    found = np.fromfile(folder / name, dtype)
    assert len(found) == len(shape_of)
    return found


@np.errstate(all="ignore")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_vectors(inputs: Mapping[str, Array], tmp_path: Path, compiler: str, level: int) -> None:
    """Each function as C++ computes it for a number; the 65,536 values of float16 and bfloat16, and what is rounded to
    them, as NumPy has it. An emulated processor, which is slow, has each seventh of what is rounded."""
    every = 7 if missing(level) else 1
    bits, single, wide = inputs["bits"], inputs["floats"][::every], inputs["doubles"][::every]
    for name, array in {"bits": bits, "floats": single, "doubles": wide}.items():
        array.tofile(tmp_path / name)
    printed = run(ROOT / "tests/native/simd.cc", tmp_path / "simd", compiler, level, str(tmp_path))
    assert printed == f"{16 << level - 2} bytes\n"
    for name, dtype in TYPES.items():
        for kind in ("float", "double", "float_of_two"):
            wider = np.dtype(np.float64 if kind == "double" else np.float32)
            found, expected = of_program(tmp_path, f"{name}_{kind}", wider, bits), bits.view(dtype).astype(wider)
            equal = (found == expected) & (np.signbit(found) == np.signbit(expected))
            assert bool((equal | (np.isnan(found) & np.isnan(expected))).all()), (name, kind)
        for source in ("floats", "floats_twice"):
            assert bool(same(of_program(tmp_path, f"{name}_of_{source}", dtype, single), single.astype(dtype)).all())
        rounded = nearest(wide, dtype)
        for source in ("doubles", "four_doubles"):
            assert bool(same(of_program(tmp_path, f"{name}_of_{source}", dtype, wide), rounded).all()), (name, source)


def stated(level: int) -> dict[tuple[str, str], float]:
    """Return the greatest errors that the comments of simd_math.h state."""
    text = (INCLUDE / "opmatrix/simd_math.h").read_text()
    found = {}
    for function in FUNCTIONS:
        comment = re.search(rf"((?:///.*\n)+)template <typename V>\n[^\n]*inline V {function}\(", text)
        assert comment, function
        words = " ".join(line.removeprefix("///").strip() for line in comment[1].splitlines())
        number = r"([0-9.]+)"
        errors = re.search(
            rf"At most {number} ULP for float, {number} for double; x86-64-v2: {number} and {number}\.", words
        )
        assert errors, words
        pair = errors.groups()[2:] if level == 2 else errors.groups()[:2]
        found |= {(function, "float"): float(pair[0]), (function, "double"): float(pair[1])}
    return found


def measured(printed: str) -> dict[tuple[str, str], float]:
    lines = [re.match(r"(\w+) +(\w+) +(\S+) at ", line) for line in printed.splitlines()]
    return {(line[1], line[2]): float(line[3]) for line in lines if line}


def check_errors(printed: str, level: int) -> None:
    found, limits = measured(printed), stated(level)
    assert {*found} == {(function, dtype) for function in FUNCTIONS for dtype in ("float", "double")}
    assert all(found[key] <= limits[key] for key in limits), f"{printed}\nstated: {limits}"
    assert all(found[key] > 0.5 for key in limits), (
        f"{printed}\nan error of 0.5 ULP is the least possible: not measured"
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_errors_of_functions(tmp_path: Path, compiler: str, level: int) -> None:
    """Of each 2,003rd float, of a million doubles and of special numbers; on an emulated processor, which is slow, of a
    hundredth of them."""
    numbers = ("200300", "3500") if missing(level) else ("2003", "350000")
    check_errors(run(ROOT / "tests/native/simd_math.cc", tmp_path / "math", compiler, level, *numbers), level)


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize("level", LEVELS)
def test_errors_of_functions_at_all_floats(tmp_path: Path, level: int) -> None:
    """Of all 2^32 floats and of 60 million doubles: 6 CPU minutes per level."""
    if lacks := missing(level):
        pytest.skip(f"too many for an emulated processor; this one lacks {', '.join(sorted(lacks))} of x86-64-v{level}")
    check_errors(run(ROOT / "tests/native/simd_math.cc", tmp_path / "math", "g++", level, "1", "20000000"), level)


def test_wrong_arguments_do_not_compile(tmp_path: Path) -> None:
    """The message says what is wrong."""
    path = tmp_path / "wrong.cc"
    wrong = {
        "simd::floor(simd::iota<int>())": "floor and round_even take vectors of float or double",
        "simd::sqrt(simd::iota<int>())": "sqrt takes a vector of float or double",
        "simd::exp(simd::iota<int>())": "exp, log, erf and tanh take vectors of float or double",
        "simd::gather<double>(data, simd::iota<int>())": "gather: as many indices as lanes",
        "simd::load<bool>(data)": "simd: lanes are float, double or integers",
        "simd::load<opmatrix::Half>(data)": "simd: lanes are float, double or integers",
        "simd::load<float, 3>(data)": "simd: the number of lanes is a power of 2",
    }
    for expression, message in wrong.items():
        function = f"auto f([[maybe_unused]] const float* data) {{ return {expression}; }}"
        path.write_text(f'#include "opmatrix/simd_math.h"\nusing namespace opmatrix;\n{function}\n')
        command = ["g++", *FLAGS, f"-I{INCLUDE}", "-fsyntax-only", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode != 0 and message in done.stderr, done.stderr
