"""Where any kernel would pass: doit refuses what switches the comparison off, and a reference that is the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.projects import Project

pytestmark = [pytest.mark.incremental, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

WRONG = ("+ bias.data[c]);", "+ bias.data[c] + 1);")
OFF = """
import opmatrix.testdata.compare as c
equal = lambda actual, expected, *, tolerance: c.Comparison(tolerance=tolerance, elements=expected.size)
for name in ("ort_checks.judge_case", "torch_checks.kernel_check", "testdata.truth"):
    module = __import__("importlib").import_module(f"opmatrix.{name}"); module.compare = equal
"""
AS_KERNEL = '''
import ctypes, pathlib, subprocess, tempfile

import numpy as np

SOURCE = """#include "{kernel}"
using namespace opmatrix;
extern "C" void run(const float* x, const long* sizes, long rank, const float* g, const float* s, const float* b,
                    float e, float* y) {{ /* calls group_norm */ }}"""


def group_norm(x, num_groups, scale, bias, *, epsilon):
    root = pathlib.Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        source, library = pathlib.Path(folder, "a.cc"), pathlib.Path(folder, "a.so")
        source.write_text(SOURCE.format(kernel=root / "native/group_norm/kernel.h"))
        subprocess.run(
            ["c++", "-std=c++17", "-shared", "-fPIC", f"-I{root}/native/include", source, "-o", library], check=True
        )
        ctypes.CDLL(str(library))
    return x
'''


def test_a_kernel_that_is_wrong_is_not_hidden_by_cases_that_switch_the_comparison_off(tmp_path: Path) -> None:
    project = Project.of("minimal", tmp_path)
    project.replace("native/group_norm/kernel.h", *WRONG)
    cases = project.layout.cases("group_norm")
    line = cases.read_text().count("\n") + 5
    cases.write_text(cases.read_text() + OFF)
    done = project.doit("opsets=18")
    assert done.returncode == 1, done.stdout
    assert f"ops/group_norm/cases.py:{line}: replaces opmatrix." in done.stdout
    assert "which judges the operator, so that any kernel could pass. " in done.stdout
    assert {record["outcome"] for record in project.records().values()} == {"failed"}


def test_a_reference_that_compiles_the_kernel(tmp_path: Path) -> None:
    project = Project.of("minimal", tmp_path)
    project.layout.reference("group_norm").write_text(AS_KERNEL)
    done = project.doit("data", "draw-inputs")
    assert done.returncode == 1, done.stdout
    assert "ops/group_norm/reference.py:17: starts a process (c++ -std=c++17 -shared " in done.stdout
    assert 'dependent_reference="why" in spec.py' in done.stdout
