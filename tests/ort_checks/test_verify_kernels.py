"""Faults that are planted in a kernel, which is compiled like any other: verify finds each."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from opmatrix.basics.errors import VerifyError
from opmatrix.basics.version import minor
from opmatrix.codegen import write_code
from opmatrix.data import write_data
from opmatrix.declaration.load import Operator
from opmatrix.export import write_node_models
from opmatrix.ort_checks import save_case, verify
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.records import verdict
from opmatrix.records.verdict import Verdict
from opmatrix.search import draw_inputs
from opmatrix.spec import Case, Model, OpSpec, Random
from opmatrix.toolchain import compile
from tests.support.building import with_native
from tests.support.specs import declare
from tests.support.taken_away import replayed

pytestmark = [pytest.mark.compile, pytest.mark.ort]

CELL = Cell(torch=None, exporter="node", opset=18, ort=minor(installed().onnxruntime))
REFERENCE = """\
import numpy as np

def differ(x, y):
    with np.errstate(all="ignore"):
        return x - y, y - x
"""
KERNEL = """\
#pragma once
#include <sched.h>
#include <cmath>
#include <cstdint>
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::differ {
template <typename T>
void differ(TensorView<const T> x, TensorView<const T> y, TensorView<T> first, TensorView<T> second) {
  // before
  parallel_for(0, x.numel(), 512, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T a = x.data[i], b = y.data[i];
      first.data[i] = a - b;
      second.data[i] = b - a;
    }
    // within
  });
  // after
}
}  // namespace opmatrix::differ
"""


def inputs(*shape: int, mean: float = 0.0, nan: bool = False) -> dict[str, Random]:
    specials = {1: float("nan")} if nan else {}
    return {"x": Random(shape=shape, mean=mean, specials=specials), "y": Random(shape=shape)}


MODELS = (
    Model(
        name="dynamic",
        types={"T": "float32"},
        dynamic={"x": ("N", "C"), "y": ("N", "C")},
        cases=(
            Case(name="one_row", inputs=inputs(1, 5)),
            Case(name="rows", inputs=inputs(3, 5)),
            Case(name="far", inputs=inputs(1, 5, mean=1e6)),
            Case(name="nan", inputs=inputs(1, 5, nan=True)),
            Case(name="threads", inputs=inputs(1, 4001)),
        ),
    ),
)


def spec(kernel: str) -> OpSpec:
    return declare(
        "differ(x: T[N, C], y: T[N, C]) -> first: T like x, second: T like y",
        summary="Two differences.",
        types={"T": ("float32",)},
        kernel=kernel,
    )


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Return a project with all files but the kernel."""
    paths = with_native(tmp_path_factory.mktemp("differ"), "differ", REFERENCE)
    draw_inputs.run(paths, Operator(spec=spec(KERNEL), models=MODELS))
    return paths


@pytest.fixture
def tried(paths: Paths) -> Callable[[str], tuple[Verdict, str]]:
    """Return a function from a kernel to its verdict and the message of verify."""

    def tried(kernel: str) -> tuple[Verdict, str]:
        gc.collect()  # a session that is still alive would keep the library of the kernel before, of the same path
        operator = Operator(spec=spec(kernel), models=MODELS)
        write_code.run(paths, operator)
        compile.run(paths, operator)
        write_data.run(paths, operator)
        write_node_models.run(paths, operator, lowering="custom", cell=CELL)
        message = ""
        try:
            verify.run(paths, operator, lowering="custom", cell=CELL)
        except VerifyError as error:
            message = str(error)
        return verdict.read(paths.verdict("differ", "custom", CELL)), message

    return tried


def test_the_right_kernel_is_verified(tried: Callable[[str], tuple[Verdict, str]]) -> None:
    found, message = tried(KERNEL)
    assert (found.outcome, message) == ("verified", "")


WRONG = "The reference evaluator agrees with the expected output: kernel or reference (in float64) is wrong"
SHARED = """\
static T shared[1 << 20];
  const std::int64_t n = x.numel();
  for (std::int64_t i = 0; i < n; ++i) shared[i] = x.data[i] - y.data[i];
  for (int i = 0; i < 50; ++i) sched_yield();
  for (std::int64_t i = 0; i < n; ++i) first.data[i] = shared[i];
"""


@pytest.mark.parametrize(
    ("old", "new", "cases", "message"),
    [
        ("a = x.data[i], b = y.data[i]", "a = y.data[i], b = x.data[i]", "one_row rows far nan threads", WRONG),
        ("second.data[i] = b - a;", "second.data[i] = b;", "one_row rows far nan threads", "output 'second': "),
        ("a - b;", "a - b + (x.sizes[0] > 1);", "rows", WRONG),
        ("a - b;", "a < T(1000) || a != a ? a - b : a;", "far", WRONG),
        ("a - b;", "std::isnan(a - b) ? T(0) : a - b;", "nan", "at (0, 1): expected nan, got 0.0. " + WRONG),
        ("// within", "if (begin > 0) first.data[begin] += 1;", "threads", WRONG),
        ("// before", "const_cast<T*>(x.data)[0] = 77;", "one_row rows far nan threads", "wrote to its input 'x'"),
        (
            "// after",
            "static int runs; first.data[0] += runs++ % 2;",
            "one_row rows far nan threads",
            "(only in these runs: ",
        ),
        ("// after", SHARED, "", "right alone, and wrong while other threads run the same session: "),
    ],
    ids=["swapped", "second_output", "batch", "mean", "nan", "parts", "input", "second_run", "shared"],
)
def test_a_planted_fault_is_found(
    tried: Callable[[str], tuple[Verdict, str]], old: str, new: str, cases: str, message: str
) -> None:
    assert old in KERNEL
    found, said = tried(KERNEL.replace(old, new, 1))
    wrong = [c.case for c in found.cases if c.outcome != "verified"]
    assert found.outcome == "mismatched"
    assert wrong == cases.split() or (not cases and wrong), wrong
    assert message in said


LONG = """\
if (x.numel() >= 10000) {
    static T shared[1 << 20];
    for (std::int64_t i = 0; i < x.numel(); ++i) shared[i] = x.data[i] - y.data[i];
    sched_yield();
    for (std::int64_t i = 0; i < x.numel(); ++i) first.data[i] = shared[i];
  }"""


def test_a_buffer_that_only_long_calls_share(tried: Callable[[str], tuple[Verdict, str]]) -> None:
    """The largest case has 8,002 elements."""
    found, said = tried(KERNEL.replace("// after", LONG))
    assert [c.case for c in found.cases if c.outcome != "verified"] == ["threads"]
    assert "while other threads run the same session: its inputs repeated to " in said
    assert "The kernel shares a buffer between calls" in said


@pytest.mark.parametrize(
    ("new", "message", "elsewhere"),
    [
        ("if (x.size(1) == 7 && x.numel() > 0) first.data[0] += 1;", "first: 1 of ", "first: 1 of "),
        (
            'KERNEL_CHECK(x.size(1) != 7, "differ: seven");',
            "the kernel rejects what the reference computes: Non-zero status code returned while running Differ node",
            "differ: seven",
        ),
        (
            "if (x.size(1) == 7 && x.numel() > 0) const_cast<T*>(x.data)[0] = 77;",
            "the kernel writes into its input",
            "",
        ),
        (
            "static int runs; if (x.size(1) == 7 && x.numel() > 0) first.data[0] += runs++ % 2;",
            "the second run gives other numbers than the first: first: ",
            "first: a second run gives 1 other values",
        ),
        # An element that is not written, in memory that has the right value already, as new memory does where it is 0.
        (
            'if (x.size(1) == 7 && x.numel() > 0 && std::memcmp(&before, "\\xa5\\xa5\\xa5\\xa5", 4) == 0) '
            "first.data[0] = before;",
            "the second run gives other numbers than the first: first: ",
            "",
        ),
    ],
    ids=["value", "refuses", "input", "second_run", "unwritten"],
)
def test_the_search_finds_a_fault_that_no_case_shows(
    tried: Callable[[str], tuple[Verdict, str]], paths: Paths, new: str, message: str, elsewhere: str, tmp_path: Path
) -> None:
    """No case has seven columns. The message has a small input, whose name `--case` takes; it fails `elsewhere` too."""
    kernel = KERNEL.replace("// after", new).replace(
        "#include <cmath>", '#include <cmath>\n#include <cstring>\n#include "opmatrix/check.h"'
    )
    if "before" in new:
        kernel = kernel.replace("// before", "const T before = first.numel() > 0 ? first.data[0] : T(0);")
    found, said = tried(kernel)
    assert [c.case for c in found.cases if c.outcome != "verified"] == ["drawn_inputs"]
    assert re.search(rf"differ-found_\w+ in ONNX Runtime: {re.escape(message)}", said), said
    shown = re.search(r"The smallest of the random inputs that fail: .* adopt-case differ (found_\w+)", said, re.DOTALL)
    assert shown, said
    operator = Operator(spec=spec(kernel), models=MODELS)
    with pytest.raises(VerifyError, match=re.escape(message)):
        verify.run(paths, operator, lowering="custom", cell=CELL, case=shown[1])
    path = paths.mismatches(paths.verdict("differ", "custom", CELL))
    records = json.loads(path.read_text())["mismatches"] if path.exists() else []
    if message.startswith(("first", "the second run")):
        assert [(one["case"], one["drawn"], one["output"]) for one in records] == [("drawn_inputs", shown[1], "first")]
        assert records[0]["differing"] == 1 and records[0]["maps"] and "Mismatched elements: 1 / " in said
    for case in (shown[1], "drawn_inputs") if records else (shown[1],):
        save_case.run(paths, operator, lowering=None, cells=[CELL], case=case, into=tmp_path / case)
        done = replayed(tmp_path / case)
        assert elsewhere in done.stdout and done.returncode == (1 if elsewhere else 0), done.stdout + done.stderr
