"""Compile and call the copy loop and the FMA loop, which measure the limits of the machine in the same run."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opmatrix.basics.errors import ToolchainError
from opmatrix.data.arrays import Array
from opmatrix.project.paths import Paths
from opmatrix.toolchain.find import find_compiler

SOURCE = Path(__file__).with_name("roofline.cc")
# For this machine alone: the loops are a limit, and kernels of plain x86-64 may stay below it.
FLAGS = ("-std=c++20", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-pthread")


def build(paths: Paths) -> Path:
    """Return the library of both loops, compiled once for this machine. Raises ToolchainError."""
    compiler = find_compiler(os.environ)
    machine = " ".join(line for line in _cpu_lines() if line.startswith(("model name", "flags")))
    key = hashlib.sha256(f"{SOURCE.read_text(encoding='utf-8')}{compiler}{FLAGS}{machine}".encode()).hexdigest()[:16]
    library = paths.roofline(key)
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(f".{os.getpid()}")
        command = [*compiler, *FLAGS, str(SOURCE), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ToolchainError(f"the copy and FMA loops do not compile:\n{done.stderr}\nRun: {shlex.join(command)}")
        made.replace(library)
    return library


def _cpu_lines() -> list[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # a container may hide it
        return []
    return text.partition("\n\n")[0].splitlines()


def processor() -> str:
    """Return the name of the processor, or "unknown"."""
    found = [line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")]
    return found[0] if found else "unknown"


_MOST = 1 << 30  # bytes: more are in no cache either, and take memory
_TRIED = 1 << 22  # bytes that each copy loop copies to show which is faster


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A loop: `run` runs a number of passes and returns the seconds. `amount` is what a pass does: bytes that are read
    and written, or floating-point operations."""

    run: Callable[[int], float]
    amount: float


def copy_loop(library: Path, *, moved: int, threads: int) -> Loop:
    """Return the faster one of two loops that read and write together as many bytes as a row moves, `_MOST` at most."""
    import numpy as np

    half = min(max(64, moved // 2), _MOST // 2)
    source: Array = np.ones(half, np.uint8)
    target: Array = np.zeros(half, np.uint8)
    loaded = ctypes.CDLL(str(library))

    def loop_of(name: str) -> Callable[[int], float]:
        function = getattr(loaded, f"opmatrix_copy_{name}")
        function.restype = ctypes.c_double

        def run(passes: int) -> float:
            to, origin = (ctypes.c_void_p(array.ctypes.data) for array in (target, source))
            return float(function(to, origin, ctypes.c_int64(half), threads, ctypes.c_int64(passes)))

        return run

    loops = [loop_of("memcpy"), loop_of("vectors")]
    passes = max(1, _TRIED // half)
    run = min(loops, key=lambda loop: min(loop(passes) for _ in range(5)))
    return Loop(run=run, amount=2.0 * half)


def fma_loop(library: Path, *, dtype: str, threads: int) -> Loop:
    """Return the loop of multiply-adds in float64 or float32."""
    loaded = ctypes.CDLL(str(library))
    name = "float64" if dtype == "float64" else "float32"
    function, flops = getattr(loaded, f"opmatrix_fma_{name}"), getattr(loaded, f"opmatrix_flops_{name}")
    function.restype, flops.restype = ctypes.c_double, ctypes.c_int64
    return Loop(run=lambda passes: float(function(threads, ctypes.c_int64(passes))), amount=float(flops()) * threads)
