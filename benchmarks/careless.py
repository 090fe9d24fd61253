"""Does a careless proof have a lower score? One operator from `doit new`, filled in twice, and `doit mutate` of both.

    ./run python benchmarks/careless.py [--count 60]

The reference is the same. The careless one has one case and a loose tolerance, and does not declare that an input is an
index, so that most drawn inputs are refused. The careful one declares it, has the tolerance that `doit tolerances`
calls for, and cases for what the kernel does. Both pass all gates; the search of the careless one is weak.
The exit code is 1 if the careless score is not at least GAP points lower.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from measuring import DOIT, ROOT, measure, nothing

GAP = 3.0  # points
NAME = "weighted_rows"
SCHEMA = f"my::{NAME}(Tensor x, Tensor index, Tensor weight) -> Tensor"

SPEC = """
from opmatrix.spec import Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp, ValueRule

SPEC = OpSpec(
    name="weighted_rows",
    summary="Copy the rows that an index names, each with a weight, unless the weight is small.",
    torch=TorchOp(name="my::weighted_rows"),
    onnx=OnnxOp(domain="my.domain", op_type="WeightedRows"),
    inputs=(
        Input(name="x", type="float32", dims=("N", "C"), doc="rows"),
        Input(name="index", type="int64", dims=("M",),@RULE@ doc="which row"),
        Input(name="weight", type="float32", dims=("M",), doc="its factor"),
    ),
    outputs=(Output(name="y", type="float32", shape=Dims(dims=("M", "C"))),),
    tolerances={"custom": {"float32": @TOLERANCE@}},
)
"""
KERNEL = """
#pragma once

#include <cstdint>

#include "opmatrix/check.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::weighted_rows {

inline void weighted_rows(TensorView<const float> x, TensorView<const std::int64_t> index,
                          TensorView<const float> weight, TensorView<float> y) {
  const std::int64_t columns = x.size(1);
@CHECK@  const auto copy = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const float* const from = x.data + index.data[i] * columns;
      const float factor = weight.data[i] > -0.125f && weight.data[i] < 0.125f ? 0 : weight.data[i];
      for (std::int64_t c = 0; c < columns; ++c) y.data[i * columns + c] = from[c] * factor;
    }
  };
  parallel_for(0, index.numel(), 1 + 16384 / (columns + 1), copy);
}

}  // namespace opmatrix::weighted_rows
"""
CHECK = """  for (std::int64_t i = 0; i < index.numel(); ++i) {
    KERNEL_CHECK(index.data[i] >= 0 && index.data[i] < x.size(0), "no row ", index.data[i]);
  }
"""
REFERENCE = """
import numpy as np
from numpy.typing import NDArray


def weighted_rows(
    x: NDArray[np.floating], index: NDArray[np.int64], weight: NDArray[np.floating]
) -> NDArray[np.floating]:
    \"\"\"Return x[index] * weight, where weights between -1/8 and 1/8 are 0.\"\"\"
    if not ((index >= 0) & (index < len(x))).all():
        raise ValueError("no such row")
    factor = np.where(np.abs(weight) < 0.125, 0, weight)
    with np.errstate(all="ignore"):
        y: NDArray[np.floating] = x[index] * factor[:, None]
        return y
"""
CARELESS = """
from opmatrix.spec import Case, Model, Random, Values

INPUTS = {"x": Random(shape=(4, 8)), "index": Values(values=(0, 1, 2, 3)), "weight": Random(shape=(4,))}
MODELS = (Model(name="plain", cases=(Case(name="plain", inputs=INPUTS),)),)
"""
CAREFUL = """
from opmatrix.spec import Case, Model, Random, Values


def case(name: str, rows: int, columns: int, *index: int) -> Case:
    x, count = Random(shape=(rows, columns)), (len(index),)
    return Case(name=name, inputs={"x": x, "index": Values(values=index), "weight": Random(shape=count)})


LIMITS = Values(values=(0.125, -0.125, 0.1249, -0.1249))
MODELS = (
    Model(
        name="rows",
        dynamic={"x": ("N", "C"), "index": ("M",), "weight": ("M",)},
        cases=(
            case("rows", 4, 8, 3, 0, 0, 2, 1), case("prime", 5, 7, 4, 4, 4), case("one", 1, 1, 0), case("none", 3, 2),
            case("threads", 9, 7000, *range(9)),
        ),
    ),
    Model(
        name="limits",
        cases=(
            Case(
                name="limits",
                inputs={"x": Random(shape=(2, 3)), "index": Values(values=(1, 0, 1, 0)), "weight": LIMITS},
            ),
        ),
    ),
)
"""


@dataclass(frozen=True)
class Side:
    """What the two sides have of their own: tolerance, the rule of the index, the kernel's check, cases."""

    tolerance: str
    rule: str
    check: str
    cases: str


SIDES = {
    "careless": Side(tolerance="Tolerance(rtol=0.3, atol=0.1)", rule="", check=CHECK, cases=CARELESS),
    "careful": Side(
        tolerance="Tolerance(rtol=2e-7, atol=0.0)", rule=' values=ValueRule(index_into="N"),', check="", cases=CAREFUL
    ),
}


def score(folder: Path, side: Side, count: int) -> tuple[float, int, int]:
    """Return the score in percent of one operator in a project of its own, its killed mutants and its survivors."""
    project = folder / "project"
    measure(1, nothing, *DOIT, "new", "--project", str(project), cwd=folder)
    shutil.copy(ROOT / "pyproject.toml", project)
    measure(1, nothing, *DOIT, "new", "--schema", SCHEMA, "--domain", "my.domain", cwd=project)
    for path, text in (
        (f"ops/{NAME}/spec.py", f'"""Rows with weights."""\n{SPEC}'),
        (f"ops/{NAME}/cases.py", f'"""Cases."""\n{side.cases}'),
        (f"ops/{NAME}/reference.py", f'"""The reference."""\n{REFERENCE}'),
        (f"native/{NAME}/kernel.h", f"// y[i] = x[index[i]] * weight[i]\n{KERNEL.lstrip()}"),
    ):
        for mark, own in (("@TOLERANCE@", side.tolerance), ("@RULE@", side.rule), ("@CHECK@", side.check)):
            text = text.replace(mark, own)
        (project / path).write_text(text)
    measure(1, nothing, *DOIT, cwd=project, says="verified")
    measure(1, nothing, *DOIT, "mutate", "--count", str(count), NAME, cwd=project, says="score of")
    measure(1, nothing, *DOIT, cwd=project)
    (found,) = json.loads((project / "build/report/report.json").read_text())["mutation"]
    killed, survived = found["killed"], found["survived"]
    return 100 * killed / (killed + survived), killed, survived


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="mutants of each")
    options = parser.parse_args()
    found: dict[str, float] = {}
    for side, own in SIDES.items():
        with tempfile.TemporaryDirectory(prefix="opmatrix-careless-") as folder:
            found[side], killed, survived = score(Path(folder), own, options.count)
        print(f"{side:10} {found[side]:5.1f}%   {killed} killed, {survived} survived", flush=True)
    return int(found["careful"] - found["careless"] < GAP)


if __name__ == "__main__":
    sys.exit(main())
