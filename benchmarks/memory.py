"""How much memory does a large case take in each step? The peak above that of the same step without it, in copies.

    ./run python benchmarks/memory.py
    ./run python benchmarks/memory.py --megabytes 128 --dtypes float32 int64 bfloat16
    ./run python benchmarks/memory.py --reference torch

A case of 1000 MB has inputs and outputs of 1000 MB together. Of three operators, one adds two tensors (sum), one has a
large input and a small output (largest), and one a small input and a large output (outer). Their references make no
array but their outputs, so that almost all memory is that of opmatrix, torch and ONNX Runtime; those in torch have a
process of their own, which counts as one of the step's. In a temporary project,
`doit` makes everything without the large cases, and then what they change; `doit -r jsonl` has the largest resident
memory of a process of each step. The difference, divided by the size of the case, is the number of its copies. The exit
code is 1 where a step takes more than four.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from measuring import DOIT, ROOT, environment

MOST = 4.0  # copies of a case in a step
OPSET = 18
WIDTH = 256


class Operator(NamedTuple):
    inputs: Mapping[str, str]  # by name, the sizes
    output: str  # the sizes
    expression: str  # of element i of the output, or of its row i
    reference: Mapping[str, str]  # in NumPy and in torch
    share: int  # a case has as many elements as this many tensors of `WIDTH` columns


SUM = "for (std::int64_t i = begin; i < end; ++i) z.data[i] = static_cast<T>(x.data[i] + y.data[i]);"
LARGEST = """for (std::int64_t i = begin; i < end; ++i) {
      T most{};
      for (std::int64_t j = 0; j < x.sizes[1]; ++j) {
        const T value = x.data[i * x.sizes[1] + j];
        if (value > most || value != value) most = value;
      }
      z.data[i] = most;
    }"""
OUTER = """for (std::int64_t i = begin; i < end; ++i) {
      z.data[i] = static_cast<T>(x.data[i / y.numel()] + y.data[i % y.numel()]);
    }"""
TABLE, ROWS, COLUMNS = '("N", "C")', '("N",)', '("C",)'
OPERATORS = {
    "sum": Operator({"x": TABLE, "y": TABLE}, TABLE, SUM, {"numpy": "x + y", "torch": "x + y"}, 3),
    "largest": Operator(
        {"x": TABLE},
        ROWS,
        LARGEST,
        {
            "numpy": "x.max(axis=1, initial=0)",
            "torch": "x.amax(1).clamp(min=0) if x.shape[1] else x.new_zeros(len(x))",
        },
        1,
    ),
    "outer": Operator(
        {"x": ROWS, "y": COLUMNS}, TABLE, OUTER, {"numpy": "x[:, None] + y", "torch": "x[:, None] + y"}, 1
    ),
}
SPEC = '''"""An operator of benchmarks/memory.py."""

from opmatrix.spec import Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

KERNEL = """
#pragma once
#include <algorithm>
#include <cstdint>
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"
namespace opmatrix::NAME {
template <typename T>
void NAME(PARAMETERS, TensorView<T> z) {
  parallel_for(0, z.numel(), 32768, [&](std::int64_t begin, std::int64_t end) {
    EXPRESSION
  });
}
}  // namespace opmatrix::NAME
"""
SPEC = OpSpec(
    name="NAME",
    summary="Compute with a large tensor.",
    torch=TorchOp(name="large::NAME"),
    onnx=OnnxOp(domain="large", op_type="NAME"),
    types={"T": ("DTYPE",)},
    inputs=(INPUTS,),
    outputs=(Output(name="z", type="T", shape=Dims(dims=SHAPE)),),
    tolerances={"custom": {"DTYPE": Tolerance(rtol=RTOL, atol=0.0)}},
    kernel=KERNEL,
    reference="LIBRARY",
)
'''
CASES = '''"""A large case and a small one."""

from opmatrix.spec import Case, Model, Random


def model(name, rows):
    inputs = {INPUTS}
    return Model(name=name, types={"T": "DTYPE"}, cases=(Case(name=name, inputs=inputs),))


MODELS = (model("large", ROWS), model("small", 3))[FIRST:]
'''
REFERENCE = '''"""In LIBRARY."""


def NAME(ARGUMENTS):
    return EXPRESSION
'''
RTOL = {"float64": "1e-15", "float32": "1e-6", "float16": "1e-3", "bfloat16": "1e-2"}
BYTES = {"float64": 8, "int64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def replaced(text: str, **words: str) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def write(project: Path, name: str, dtype: str, library: str, *, rows: int) -> None:
    """Write an operator with its reference in a library, and with a case of so many rows, or without it for 0."""
    operator, folder = OPERATORS[name], project / "ops" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(f"# {name}\n")
    parameters = ", ".join(f"TensorView<const T> {part}" for part in operator.inputs)
    inputs = ", ".join(f'Input(name="{part}", type="T", dims={dims})' for part, dims in operator.inputs.items())
    same = {"NAME": name, "DTYPE": dtype, "LIBRARY": library}
    spec = replaced(SPEC, PARAMETERS=parameters, EXPRESSION=operator.expression, INPUTS=inputs, SHAPE=operator.output,
                    RTOL=RTOL.get(dtype, "0.0"), **same)  # fmt: skip
    shapes = {part: dims.replace('"N"', "rows").replace('"C"', f"{WIDTH}") for part, dims in operator.inputs.items()}
    inputs = ", ".join(f'"{part}": Random(shape={shape})' for part, shape in shapes.items())
    cases = replaced(CASES, INPUTS=inputs, ROWS=f"{rows}", FIRST=f"{int(not rows)}", **same)
    reference = replaced(
        REFERENCE, ARGUMENTS=", ".join(operator.inputs), EXPRESSION=operator.reference[library], **same
    )
    for file, text in {"spec": spec, "cases": cases, "reference": reference}.items():
        (folder / f"{file}.py").write_text(text)


def peaks(project: Path) -> Mapping[str, int]:
    """Run doit; return the largest resident memory of a process of each step that ran, in bytes."""
    events = project / "events.jsonl"
    command = [*DOIT, "-r", "jsonl", "-o", str(events), "-n", "1", f"opsets={OPSET}"]
    done = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    found = map(json.loads, events.read_text().splitlines())
    return {event["step"]: event["memory"] for event in found if event["event"] == "end" and "memory" in event}


def copies(project: Path, operators: list[str], dtype: str, library: str, size: int) -> dict[tuple[str, str], float]:
    """Return how many copies of a case of `size` bytes each step takes that it changes, by step and operator."""
    for name in ("native/include", "native/binding"):
        shutil.copytree(ROOT / name, project / name)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(ROOT / name, project / name)
    for operator in operators:
        write(project, operator, dtype, library, rows=0)
    without = peaks(project)
    for operator in operators:
        write(project, operator, dtype, library, rows=size // (OPERATORS[operator].share * BYTES[dtype] * WIDTH))
    taken = peaks(project)
    shutil.rmtree(project)
    found = {}
    for step in [step for step in taken if step in without and ":" in step]:
        group, _, rest = step.partition(":")
        operator, _, cell = rest.partition("-")
        operator, at, torch = operator.partition("@")
        found[f"{group}{'-' * bool(cell)}{cell}{at}{torch}", operator] = (taken[step] - without[step]) / size
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smallest", action="store_true", help="160 MB, float32, one operator: what a test runs")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the case, inputs and outputs together")
    parser.add_argument("--dtypes", nargs="+", choices=BYTES, default=["float32", "float64"])
    parser.add_argument("--reference", choices=("numpy", "torch"), default="numpy", help="library of the references")
    options = parser.parse_args()
    megabytes, dtypes, operators = options.megabytes, options.dtypes, [*OPERATORS]
    if options.smallest:
        megabytes, dtypes, operators = 160, ["float32"], ["sum"]
    worst = 0.0
    for dtype in dtypes:
        with tempfile.TemporaryDirectory() as folder:
            found = copies(Path(folder) / "project", operators, dtype, options.reference, megabytes * 1_000_000)
        print(f"{f'copies of a case of {megabytes} MB, {dtype}':46}", *(f"{name:>9}" for name in operators))
        for step in dict.fromkeys(step for step, _ in found):
            print(f"{step:46}", *(f"{found[step, name]:9.1f}" for name in operators), flush=True)
        worst = max(worst, *found.values())
    print(f"the most: {worst:.1f} copies, allowed: {MOST:.0f}")
    return int(round(worst, 1) > MOST)


if __name__ == "__main__":
    sys.exit(main())
