"""Kernels that are compiled for each level of x86-64: what an object contains, which level runs, and that every level
of the processor is tested. The project is tests/projects/levels."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opmatrix.basics.errors import ToolchainError
from opmatrix.project import cpu_levels
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.toolchain import symbols
from opmatrix.toolchain.find import find_objcopy
from tests.support.building import build
from tests.support.projects import Project, edited

NAME = "softsign_sorted"
HERE = cpu_levels.of_processor()
CELLS = ("opsets=17",)  # of the legacy exporter alone, which is the faster one
LINE = "    y.data[i] = value / (1 + (value < 0 ? -value : value));"


def test_the_levels_of_processors() -> None:
    v2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
    v3 = v2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
    v4 = v3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    assert [cpu_levels._of_flags(flags) for flags in (v4, v3, v2, set())] == [(2, 3, 4), (2, 3), (2,), ()]
    assert cpu_levels._of_flags(v4 - {"fma"}) == (2,), "a level needs all levels below it"
    assert cpu_levels._of_flags(v4 - {"avx512vl"}) == (2, 3)


def test_a_missing_objcopy_is_named_with_what_to_do() -> None:
    with pytest.raises(ToolchainError, match=r"objcopy not found on PATH '/nowhere'.*binutils.*remove cpu_levels"):
        find_objcopy({"PATH": "/nowhere"})


@pytest.fixture(scope="module", params=["g++", pytest.param("clang++", marks=pytest.mark.clang)])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paths]:
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} on PATH")
    project = Project.of("levels", tmp_path_factory.mktemp("levels"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", request.param)
        build(project.paths, NAME)
        yield project.paths


def instructions(path: Path) -> set[str]:
    """Return the registers and mnemonics of each instruction of an object."""
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    return set(re.findall(r"%[xyz]mm|\bv[a-z]+", done.stdout))


@pytest.mark.compile
def test_the_object_of_a_level_has_its_instructions_and_shows_one_function(built: Paths) -> None:
    folder = built.compile_folder(NAME)
    lowest, higher = instructions(folder / "kernel_v2.o"), instructions(folder / "kernel_v3.o")
    assert "%xmm" in lowest and "vmovss" not in lowest and "%ymm" not in lowest
    assert "vmovss" in higher, "std::sort of x86-64-v3 has instructions of AVX"
    done = subprocess.run(
        ["nm", "-C", "--defined-only", folder / "kernel.o"], capture_output=True, text=True, check=True
    )
    shown = {
        line.split(maxsplit=2)[2].partition("(")[0] for line in done.stdout.splitlines() if line.split()[1] in "TWVuB"
    }
    of_levels = {f"opmatrix::{NAME}::level_{level}::compute" for level in cpu_levels.NUMBERS}
    assert shown == {f"opmatrix::{NAME}::compute"} | of_levels, "an inline function of a level could serve another"


@pytest.mark.compile
def test_inline_functions_are_found_in_an_object_without_the_step_that_makes_them_local(built: Paths) -> None:
    """Else the test above could not fail."""
    text = (built.compile_folder(NAME) / "build.ninja").read_text()
    assert text.count("--keep-global-symbol") == 4
    source = built.generated(NAME) / "kernel.cc"
    flags = [f"-I{folder}" for folder in (built.generated(NAME), built.include, built.binding, built.native)]
    command = [*os.environ["CXX"].split(), "-std=c++20", "-O2", "-fPIC", "-DOPMATRIX_CPU_LEVEL=3", *flags, "-c"]
    subprocess.run([*command, source, "-o", built.root / "whole.o"], check=True)
    done = subprocess.run(["nm", "-C", built.root / "whole.o"], capture_output=True, text=True, check=True)
    assert re.search(r" [Wu] .*calls\(\)", done.stdout)


@pytest.mark.compile
def test_a_library_runs_at_each_level_of_the_processor_and_at_no_other(built: Paths) -> None:
    for path in (built.torch_library(NAME), built.ort_library(NAME)):
        assert symbols.LEVEL in symbols.read_symbols(path).defined
    level = ctypes.CDLL(str(built.ort_library(NAME))).opmatrix_cpu_level
    assert [level(n) for n in HERE] == [*HERE]
    assert level(0) == max(HERE), "the highest is the default"
    above = max(HERE) + 1
    assert [level(1), level(above), level(-2)] == [0, 0, 0] and level(0) == max(HERE)


CALLS = f"""
import ctypes, os, sys, torch
torch.ops.load_library(sys.argv[1])
for level in ("v3", "2"):
    os.environ["OPMATRIX_CPU_LEVEL"] = level
    try:
        print(torch.ops.levels.{NAME}(torch.tensor([3.0, -1.0])).tolist())
    except RuntimeError as error:
        print(error)
print(ctypes.CDLL(sys.argv[1]).opmatrix_cpu_level(0))
"""


@pytest.mark.compile
@pytest.mark.torch
def test_the_variable_lowers_the_level(built: Paths) -> None:
    """In a process of its own: the first call chooses the level. One that fails chooses none."""
    done = subprocess.run([sys.executable, "-c", CALLS, built.torch_library(NAME)], capture_output=True, text=True)
    wrong, right, level = done.stdout.splitlines()
    assert wrong == "OPMATRIX_CPU_LEVEL must be 2, 3 or 4, got v3; unset it to use all instructions of the processor"
    assert (right, level) == ("[-0.5, 0.75]", "2"), done.stderr


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("levels", tmp_path_factory.mktemp("verified"), *CELLS)


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
def test_verdicts_and_records_name_the_levels_that_ran(verified: Project) -> None:
    names = tuple(map(cpu_levels.name, HERE))
    for path in verified.paths.build.glob("verdicts/**/*.json"):
        found = verdict.read_any(path)
        if isinstance(found, verdict.Verdict):
            assert found.cpu_levels == names
    cells = json.loads((verified.paths.report / "report.json").read_text())["cells"]
    assert cells and all(cell["cpu_levels"] == [*names] for cell in cells)
    record = next(verified.paths.build.rglob("kernel*.json"))
    assert json.loads(record.read_text())["results"][0]["cpu_levels"] == [*names]


@contextmanager
def wrong_at(project: Project, level: int) -> Iterator[None]:
    """Plant a fault in the kernel of one level; NaN, an exception and equal bits at the others stay as they are."""
    fault = f"#if OPMATRIX_CPU_LEVEL == {level}\n    y.data[i] += static_cast<T>(0.001);\n#endif"
    with edited(project.paths.kernel(NAME), LINE, f"{LINE}\n{fault}"):
        yield


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
@pytest.mark.parametrize(
    "level", [n if n == HERE[0] else pytest.param(n, marks=[pytest.mark.slow, pytest.mark.deep]) for n in HERE]
)
def test_a_fault_at_one_level_is_found_in_torch_and_in_onnx_runtime(verified: Project, level: int) -> None:
    with wrong_at(verified, level):
        done = verified.doit("-c", *CELLS)
    said = done.stdout + done.stderr
    shown = cpu_levels.name(level)
    assert done.returncode != 0
    assert f"in torch at {shown}" in said, said
    details = [r["detail"] for r in verified.records().values()]
    run = "optimised" if level == max(HERE) else f"optimised at {shown}"
    assert details and all(run in detail for detail in details), details
    others = [cpu_levels.name(n) for n in HERE if n != level]
    assert not any(f"in torch at {other}:" in said for other in others)


@pytest.mark.compile
@pytest.mark.torch
def test_a_library_without_a_level_of_the_processor_is_refused(verified: Project) -> None:
    """As one of another machine, or a damaged one."""
    levels = cpu_levels.LibraryLevels(verified.paths.ort_library(NAME))
    levels._set = lambda level: 0  # type: ignore[assignment]  # in place of the library's function
    with pytest.raises(Exception, match=r"does not run at x86-64-v2, which the processor has; compile it again"):
        next(levels.each())
