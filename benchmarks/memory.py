"""How much memory does a large case take in each step? The peak above that of the same step without the case, in copies.

    ./run python benchmarks/memory.py
    ./run python benchmarks/memory.py --megabytes 128 --dtypes float32 float64 bfloat16

A case of 1000 MB has inputs and outputs of 1000 MB together. The operator adds two tensors, and its reference returns
`x + y`, so that almost all memory is that of opmatrix, torch and ONNX Runtime. In a temporary project, `doit` makes
everything without the case, and then what the case changes; `doit -r jsonl` has the largest resident memory of a
process of each step. The difference, divided by the size of the case, is the number of its copies. The exit code is 1
where a step takes more than four.
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

from measuring import DOIT, ROOT, environment

MOST = 4.0  # copies of a case in a step
NAME = "large_sum"
OPSET = 18
SPEC = '''
from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

KERNEL = """
#pragma once
#include <cstdint>
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"
namespace opmatrix::large_sum {
template <typename T>
void large_sum(TensorView<const T> x, TensorView<const T> y, TensorView<T> z) {
  parallel_for(0, x.numel(), 32768, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) z.data[i] = static_cast<T>(x.data[i] + y.data[i]);
  });
}
}  // namespace opmatrix::large_sum
"""
SPEC = OpSpec(
    name="large_sum",
    summary="Add two tensors.",
    torch=TorchOp(name="large::sum"),
    onnx=OnnxOp(domain="large", op_type="LargeSum"),
    types={"T": ("DTYPE",)},
    inputs=(Input(name="x", type="T", doc="a tensor"), Input(name="y", type="T", same_as="x", doc="a tensor")),
    outputs=(Output(name="z", type="T", shape=SameAs(input="x"), doc="x + y"),),
    tolerances={"custom": {"DTYPE": Tolerance(rtol=RTOL, atol=0.0)}},
    kernel=KERNEL,
)
'''
CASES = """
from opmatrix.spec import Case, Model, Random


def inputs(*shape):
    return {"x": Random(shape=shape), "y": Random(shape=shape)}


MODELS = (
    Model(name="large", types={"T": "DTYPE"}, cases=(Case(name="large", inputs=inputs(ROWS, 1024)),)),
    Model(
        name="small",
        types={"T": "DTYPE"},
        dynamic={"x": ("N", "C"), "y": ("N", "C")},
        cases=(Case(name="small", inputs=inputs(3, 5)),),
    ),
)[FIRST:]
"""
REFERENCE = """
def large_sum(x, y):
    return x + y
"""
RTOL = {"float64": "1e-15", "float32": "1e-6", "float16": "1e-3", "bfloat16": "1e-2"}
BYTES = {"float64": 8, "int64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def write(project: Path, dtype: str, *, rows: int) -> None:
    """Write the operator, with a case of so many rows of 1024 elements, or without it for 0."""
    folder = project / "ops" / NAME
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(f"# {NAME}\n")
    texts = {"spec": SPEC, "cases": CASES.replace("ROWS", f"{rows}").replace("FIRST", f"{int(not rows)}")}
    for name, text in (texts | {"reference": REFERENCE}).items():
        made = text.replace("DTYPE", dtype).replace("RTOL", RTOL.get(dtype, "0.0"))
        (folder / f"{name}.py").write_text(f'"""The operator of benchmarks/memory.py."""\n{made}')


def peaks(project: Path) -> Mapping[str, int]:
    """Run doit; return the largest resident memory of a process of each step that ran, in bytes."""
    events = project / "events.jsonl"
    command = [*DOIT, "-r", "jsonl", "-o", str(events), "-n", "1", f"opsets={OPSET}"]
    done = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}{events.read_text()}")
    found = map(json.loads, events.read_text().splitlines())
    return {event["step"]: event["memory"] for event in found if event["event"] == "end" and "memory" in event}


def copies(folder: Path, dtype: str, size: int) -> dict[str, float]:
    """Return how many copies of a case of `size` bytes each step takes that it changes."""
    project = folder / dtype / "project"
    shutil.copytree(ROOT / "native/include", project / "native/include")
    shutil.copytree(ROOT / "native/binding", project / "native/binding")
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(ROOT / name, project / name)
    rows = size // (3 * BYTES[dtype] * 1024)  # of each of x, y and z
    write(project, dtype, rows=0)
    without = peaks(project)
    write(project, dtype, rows=rows)
    found = peaks(project)
    shutil.rmtree(project)
    return {step.replace(f":{NAME}", ""): (found[step] - without[step]) / size for step in found if step in without}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smallest", action="store_true", help="64 MB in float32: what a test runs")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the case, inputs and outputs together")
    parser.add_argument("--dtypes", nargs="+", choices=BYTES, default=["float32", "float64"])
    options = parser.parse_args()
    megabytes, dtypes = (64, ["float32"]) if options.smallest else (options.megabytes, options.dtypes)
    with tempfile.TemporaryDirectory() as folder:
        found = {dtype: copies(Path(folder), dtype, megabytes * 1_000_000) for dtype in dtypes}
    print(f"{f'copies of a case of {megabytes} MB':45}", *(f"{dtype:>9}" for dtype in dtypes))
    for step in found[dtypes[0]]:
        print(f"{step:45}", *(f"{found[dtype].get(step, 0.0):9.1f}" for dtype in dtypes))
    worst = max(max(one.values()) for one in found.values())
    print(f"the most: {worst:.1f} copies, allowed: {MOST:.0f}")
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
