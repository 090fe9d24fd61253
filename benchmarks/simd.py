"""Vectors for kernels: opmatrix/simd.h, Highway, xsimd and plain loops, by compile time, speed, accuracy and length.

    ./run python benchmarks/simd.py                 all of it, 3 CPU minutes
    ./run python benchmarks/simd.py --rounds 3      less exact

benchmarks/simd/ has the same five small kernels for each: the sum of floats; x * 1.5 + 0.25 of floats and of float16,
computed in float; exp of floats and of doubles. They are compiled with the flags of an operator's kernel, once for each
of x86-64-v2, v3 and v4; what the processor has of these runs. Highway and xsimd are those of the system (Debian:
libhwy-dev, libxsimd-dev); where one is missing, the program says so and leaves it out.

Compile time is CPU time of g++. Speed is the time of opmatrix by that of the other, so more than 1 means that the other
is faster: the median of all rounds, and the quartiles. A round runs all libraries one after another, on 4,099 numbers
that are in the first cache. An error is in ULP, of 65,536 numbers from -80 to 80, compared with exp of a wider type.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from measuring import ROOT, cpu_of_children

from opmatrix.toolchain.find import find_toolchain

SOURCES = Path(__file__).resolve().parent / "simd"
LIBRARIES = {"plain": "", "opmatrix": "", "highway": "hwy/highway.h", "xsimd": "xsimd/xsimd.hpp"}
PACKAGES = {"highway": "libhwy-dev", "xsimd": "libxsimd-dev"}
KERNELS = {"sum": "f4", "scale": "f4", "scale_half": "f2", "exp_float": "f4", "exp_double": "f8"}
# Highway would otherwise require the instructions of AES for these levels, and compile for several processors.
FLAGS = ("-std=c++20", "-fPIC", "-O2", "-ftree-vectorize", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi",
         "-fvect-cost-model=dynamic", "-DHWY_DISABLE_PCLMUL_AES", "-DHWY_COMPILE_ONLY_STATIC",
         f"-I{ROOT / 'native/include'}")  # fmt: skip
LEVELS = (2, 3, 4)
NEEDED = {2: "sse4_1", 3: "avx2", 4: "avx512bw"}  # as /proc/cpuinfo names them
COUNT = 4099


def compile_shared(compiler: tuple[str, ...], source: Path, into: Path, *flags: str) -> float:
    """Compile a source to a library; return the CPU seconds."""
    before = cpu_of_children()
    subprocess.run([*compiler, *FLAGS, *flags, "-shared", str(source), "-o", str(into)], check=True)
    return cpu_of_children() - before


def found(compiler: tuple[str, ...], header: str) -> bool:
    text = f"#include <{header}>\n" if header else ""
    command = [*compiler, *FLAGS, "-march=x86-64-v2", "-x", "c++", "-E", "-o", os.devnull, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True).returncode == 0


def lines(source: Path) -> int:
    """Count lines of code."""
    text = [line.strip() for line in source.read_text().splitlines()]
    return sum(1 for line in text if line and not line.startswith("//") and line not in {"}", "{"})


def middle(values: list[float], *, digits: int = 2) -> str:
    low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else 3 * values
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def error(library: ctypes.CDLL, kernel: str) -> float:
    """Return the greatest error of exp in ULP."""
    dtype, wide = (np.float32, np.float64) if kernel == "exp_float" else (np.float64, np.longdouble)
    x = np.random.default_rng(1).uniform(-80, 80, 1 << 16).astype(dtype)
    y = np.empty_like(x)
    call(library, kernel)(x.ctypes.data, y.ctypes.data, x.size)
    truth = np.exp(x.astype(wide))
    return float((np.abs(y - truth) / np.spacing(truth.astype(dtype)).astype(wide)).max())


def call(library: ctypes.CDLL, kernel: str) -> Any:
    function = getattr(library, kernel)
    function.restype, function.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    return function


def race(
    timing: ctypes.CDLL, libraries: Mapping[str, ctypes.CDLL], kernel: str, rounds: int
) -> Mapping[str, list[float]]:
    """Return the seconds of one call by each library, in each round."""
    timing.seconds.restype = ctypes.c_double
    x = np.random.default_rng(2).uniform(-4, 4, COUNT).astype(KERNELS[kernel])
    y = np.empty_like(x)
    of = {name: call(library, kernel) for name, library in libraries.items() if hasattr(library, kernel)}
    times: dict[str, list[float]] = {name: [] for name in of}

    def once(name: str, repeats: int) -> float:
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in (x, y))
        return float(timing.seconds(of[name], *pointers, ctypes.c_int64(COUNT), ctypes.c_int64(repeats)))

    repeats = {name: max(1, int(0.002 / max(once(name, 20) / 20, 1e-8))) for name in of}
    for _ in range(rounds):
        for name in of:
            times[name].append(once(name, repeats[name]) / repeats[name])
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--smallest", action="store_true", help="one round of one compilation: what a test runs")
    arguments = parser.parse_args()
    rounds = 1 if arguments.smallest else arguments.rounds
    compiler = tuple(find_toolchain(os.environ).compiler)
    used = [name for name, header in LIBRARIES.items() if found(compiler, header)]
    for name in LIBRARIES.keys() - {*used}:
        print(f"{name} is missing (Debian: apt install {PACKAGES[name]}); it is left out")
    if arguments.smallest:
        used = ["plain", "opmatrix"]
    flags = re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    has = flags[1].split() if flags else []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        compile_shared(compiler, SOURCES / "timing.cc", place / "timing.so")
        timing = ctypes.CDLL(str(place / "timing.so"))
        took: dict[tuple[str, int], list[float]] = {(name, level): [] for name in used for level in LEVELS}
        for _ in range(1 if arguments.smallest else max(3, rounds // 3)):
            for name, level in took:
                into = place / f"{name}-{level}.so"
                took[name, level].append(
                    compile_shared(compiler, SOURCES / f"{name}.cc", into, f"-march=x86-64-v{level}")
                )
        print(f"{'':10} {'compile v3, CPU s':>22} {'compile v2, v3 and v4':>24} {'lines':>7}")
        for name in used:
            three = [sum(each) for each in zip(*(took[name, level] for level in LEVELS), strict=True)]
            print(f"{name:10} {middle(took[name, 3]):>22} {middle(three):>24} {lines(SOURCES / f'{name}.cc'):7}")
        for level in LEVELS:
            if NEEDED[level] not in has:
                print(f"\nx86-64-v{level}: compiled, not run: this processor lacks {NEEDED[level]}")
                continue
            libraries = {name: ctypes.CDLL(str(place / f"{name}-{level}.so")) for name in used}
            print(f"\nx86-64-v{level}: the time of opmatrix by that of the other\n{'':12} {'opmatrix, ns':>13}", end="")
            print("".join(f" {name:>22}" for name in used if name != "opmatrix"))
            for kernel in KERNELS:
                times = race(timing, libraries, kernel, rounds)
                print(f"{kernel:12} {statistics.median(times['opmatrix']) * 1e9:13.0f}", end="")
                for name in used:
                    if name in times and name != "opmatrix":
                        pairs = zip(times["opmatrix"], times[name], strict=True)
                        print(f" {middle([a / b for a, b in pairs]):>22}", end="")
                    elif name != "opmatrix":
                        print(f" {'-':>22}", end="")
                print()
            for kernel in ("exp_float", "exp_double"):
                errors = (f"{name} {error(library, kernel):.2f}" for name, library in libraries.items())
                print(f"greatest error of {kernel}, ULP: {', '.join(errors)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
