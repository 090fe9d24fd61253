"""In float16 and bfloat16, no operator errs more than torch's own kernels do; one that computes in halves does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opmatrix.project.paths import Paths
from tests.support.building import build, copy_project
from tests.support.projects import ROOT

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.slow]

OPERATORS = ("group_norm", "dual_residual", "nms")
DTYPES = ("float16", "bfloat16")
# The sum of all errors counts as well: of thousands of elements, one next to a tie may be rounded to the other side.
ALLOWED = 1 + 1e-6
GROUP_NORM, DUAL_RESIDUAL, NMS = "native/group_norm/kernel.h", "ops/dual_residual/spec.py", "native/nms/kernel.h"
FAULTS = {
    "group_norm": (  # the sums are kept in halves
        (GROUP_NORM, "kStep = 8 * kFloats", "kStep = 1 << 30"),
        (GROUP_NORM, "i + 4 * kLanes <= count", "false && i < count"),
        (GROUP_NORM, "  for (; i + kLanes <= count; i += kLanes) add(x + i, 0);\n", ""),
        (GROUP_NORM, "    sum += d;\n", "    sum = static_cast<double>(static_cast<T>(sum + d));\n"),
        (GROUP_NORM, "    square += d * d;\n", "    square = static_cast<double>(static_cast<T>(square + d * d));\n"),
    ),
    "dual_residual": (  # alpha is a half
        (DUAL_RESIDUAL, "static_cast<Wide>(alpha)", "static_cast<Wide>(static_cast<T>(alpha))"),
    ),
    "nms": (  # areas are whole numbers
        (NMS, "? width * height : broadcast", "? simd::floor(width * height) : broadcast"),
    ),
}  # fmt: skip


def measured(paths: Paths) -> list[dict[str, Any]]:
    """Return the rows of `half_errors` in a process of its own, as each build registers the same operators."""
    command = [sys.executable, "-m", "tests.operators.half_errors", str(paths.build), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def worse(rows: list[dict[str, Any]], op: str, dtype: str) -> list[str]:
    """Return the inputs of an operator whose errors are larger than torch's, with the ratio."""
    of = [row for row in rows if (row["op"], row["dtype"]) == (op, dtype)]
    assert len(of) >= 4, f"{op} was not measured in {dtype}"
    return [f"{row['inputs']}: {row['ratio']:.3g} times torch's error" for row in of if row["ratio"] > ALLOWED]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    paths = copy_project(tmp_path_factory.mktemp("right"), *OPERATORS)
    for name in OPERATORS:
        build(paths, name)
    return paths


@pytest.fixture(scope="module")
def rows(built: Paths) -> list[dict[str, Any]]:
    return measured(built)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATORS)
def test_no_error_is_larger_than_that_of_torch(op: str, dtype: str, rows: list[dict[str, Any]]) -> None:
    ratios = sorted(row["ratio"] for row in rows if (row["op"], row["dtype"]) == (op, dtype))
    print(f"{op} in {dtype}: {ratios[0]:.2f} to {ratios[-1]:.2f} of torch's error, {len(ratios)} inputs")
    assert worse(rows, op, dtype) == []


def test_torch_errs_where_boxes_are_compared_in_halves(rows: list[dict[str, Any]]) -> None:
    """Otherwise nms would be compared with nothing."""
    assert {row["dtype"] for row in rows if row["op"] == "nms" and row["torch"][0] > 0} == {*DTYPES}


@pytest.mark.parametrize("op", FAULTS)
@pytest.mark.deep
def test_a_worse_kernel_is_found(op: str, tmp_path: Path) -> None:
    paths = copy_project(tmp_path, op)
    for path, old, new in FAULTS[op]:
        text = (paths.root / path).read_text()
        assert text.count(old) == 1, old
        (paths.root / path).write_text(text.replace(old, new))
    build(paths, op)
    found = measured(paths)
    assert all(worse(found, op, dtype) for dtype in DTYPES)
