"""Where any kernel would pass: doit refuses what switches the comparison off, and a reference that is the kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.projects import Project

pytestmark = [pytest.mark.incremental, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

WRONG = ("+ bias.data[c]);", "+ bias.data[c] + 1);")
OFF = """
import opmatrix.data.compare as c
equal = lambda actual, expected, *, tolerance: c.Comparison(tolerance=tolerance, elements=expected.size)
for name in ("judge.judge_case", "torch_checks.kernel_check", "data.truth"):
    module = __import__("importlib").import_module(f"opmatrix.{name}"); module.compare = equal
"""
AS_KERNEL = '''
import ctypes, functools, pathlib, subprocess, tempfile

import numpy as np

SOURCE = """#include "group_norm/kernel.h"
using namespace opmatrix;
void opmatrix::fail(std::initializer_list<Part>) { throw 1; }
extern "C" int run(const float* x, const std::int64_t* sizes, std::int64_t rank, const float* num_groups,
                   const float* scale, const float* bias, float epsilon, float* y) try {
  const std::int64_t one = 1;
  const Sizes channels = {sizes + 1, 1};
  group_norm::group_norm({x, {sizes, rank}}, {num_groups, {&one, 1}}, {scale, channels}, {bias, channels}, epsilon,
                         {y, {sizes, rank}});
  return 0;
} catch (int) { return 1; }
"""


@functools.cache
def kernel():
    native = pathlib.Path(__file__).parents[2] / "native"
    with tempfile.TemporaryDirectory() as folder:
        source, library = pathlib.Path(folder, "a.cc"), pathlib.Path(folder, "a.so")
        source.write_text(SOURCE)
        places = [f"-I{native}", f"-I{native}/include"]
        subprocess.run(["c++", "-std=c++20", "-O2", "-shared", "-fPIC", source, "-o", library, *places], check=True)
        return ctypes.CDLL(str(library)).run


def group_norm(x, num_groups, scale, bias, *, epsilon):
    floats = [np.ascontiguousarray(a, np.float32) for a in (x, num_groups, scale, bias)]
    given = [a.ctypes.data_as(ctypes.c_void_p) for a in floats]
    sizes, y = (ctypes.c_int64 * x.ndim)(*x.shape), np.empty(x.shape, np.float32)
    if kernel()(given[0], sizes, ctypes.c_int64(x.ndim), *given[1:], ctypes.c_float(epsilon),
                y.ctypes.data_as(ctypes.c_void_p)):
        raise ValueError("the kernel rejects it")
    return y.astype(x.dtype)
'''


@pytest.fixture
def wrong(tmp_path: Path) -> Project:
    """A project whose kernel is wrong."""
    project = Project.of("minimal", tmp_path)
    project.replace("native/group_norm/kernel.h", *WRONG)
    return project


def test_a_kernel_that_is_wrong_is_not_hidden_by_cases_that_switch_the_comparison_off(wrong: Project) -> None:
    cases = wrong.paths.cases("group_norm")
    line = cases.read_text().count("\n") + 5
    cases.write_text(cases.read_text() + OFF)
    done = wrong.fails("opsets=18", message=f"ops/group_norm/cases.py:{line}: replaces opmatrix.")
    assert "which judges the operator, so that any kernel could pass. " in done.stdout
    assert {record["outcome"] for record in wrong.records().values()} == {"failed"}


def test_a_reference_that_compiles_the_kernel(wrong: Project) -> None:
    """With the declaration that switches the audit off, the wrong kernel is right, and each output says why."""
    wrong.fails("opsets=18", message="elements differ")
    wrong.paths.reference("group_norm").write_text(AS_KERNEL)
    done = wrong.fails("opsets=18", message="ops/group_norm/reference.py:27: starts a process (c++ -std=c++20 ")
    assert 'dependent_reference="why" in spec.py' in done.stdout
    off = '    dependent_reference="is the kernel",\n    tolerances='
    wrong.replace("ops/group_norm/spec.py", "    tolerances=", off)
    said = wrong.passes("opsets=18").stdout
    assert {record["outcome"] for record in wrong.records().values()} == {"verified"}
    why = "reference: not independent: is the kernel"
    assert "weak group_norm-cases" in said and why in said
    report = json.loads(wrong.paths.report_data.read_text())
    assert [check["check"] for check in report["checks"] if check["weak"] == [why]] == ["cases"]
    assert why in (wrong.paths.report / "summary.md").read_text()
    wrong.fails("--strict", "opsets=18", message=f"--strict: 1 check weak:\ngroup_norm-cases\n  {why}")
