"""The copy loops copy, and the FMA loop does what it counts."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from opmatrix.addons.bench import roofline
from opmatrix.basics.errors import ToolchainError
from opmatrix.project.paths import Paths

pytestmark = pytest.mark.compile


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return roofline.build(Paths(tmp_path_factory.mktemp("project")))


def test_it_is_compiled_once(library: Path) -> None:
    before = library.stat().st_mtime_ns
    assert roofline.build(Paths(library.parents[2])) == library and library.stat().st_mtime_ns == before


def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(ToolchainError, match=rf"(?s)do not compile:\nno such luck\n.*Run: {compiler} -std=c\+\+20 "):
        roofline.build(Paths(tmp_path))


@pytest.mark.parametrize("name", ["memcpy", "vectors"])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [64, 1000, 1 << 20])
def test_a_copy_loop_copies_each_byte(name: str, threads: int, count: int, library: Path) -> None:
    source = np.random.default_rng(0).integers(0, 256, count + 1, np.uint8)[1:]  # which is not aligned
    target = np.zeros(count + 1, np.uint8)
    function = getattr(ctypes.CDLL(str(library)), f"opmatrix_copy_{name}")
    function.restype = ctypes.c_double
    to, origin = (ctypes.c_void_p(array.ctypes.data) for array in (target, source))
    assert function(to, origin, ctypes.c_int64(count), threads, ctypes.c_int64(2)) > 0
    assert (target[:-1] == source).all() and target[-1] == 0


def test_a_loop_counts_what_a_pass_does(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert roofline.copy_loop(library, moved=1 << 16, threads=1).amount == 1 << 16
    assert roofline.copy_loop(library, moved=1, threads=1).amount == 128
    monkeypatch.setattr(roofline, "_MOST", 1 << 20)
    assert roofline.copy_loop(library, moved=10**15, threads=1).amount == 1 << 20, "a row that is too large to copy"
    single, double, two = (
        roofline.fma_loop(library, dtype=dtype, threads=threads)
        for dtype, threads in (("float32", 1), ("float64", 1), ("float64", 2))
    )
    assert single.amount == 2 * double.amount and two.amount == 2 * double.amount
    assert min(loop.run(100) for loop in (single, double, two)) > 0


def test_no_chain_of_the_fma_loop_is_merged_with_another(library: Path) -> None:
    """A compiler that finds them equal computes one, and the loop would reach twelve times too much."""
    done = subprocess.run(["objdump", "-d", str(library)], capture_output=True, text=True, check=True)
    body = done.stdout.partition("<opmatrix_fma_float32>:")[2].partition("\n\n")[0]
    everything = body if body.count("ps") >= 12 else done.stdout  # it may be in a function of its own
    fused = [line for line in everything.splitlines() if "vfmadd" in line or "mulps" in line]
    assert len({line.rpartition(",")[2] for line in fused}) >= 12, everything
