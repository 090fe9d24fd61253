"""Run `doit bench --against` of an operator against itself, and count false alarms; then with a planted slowdown.

A project of one operator whose kernel does `PASSES` multiply-adds for each element. A run times the same build twice,
as a revision without a change would; `--planted 10` does 10% more of them, and counts the runs that find it. A run
judges `--rows` rows, each in torch and in ONNX Runtime, and is an alarm if any of them is called slower.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import DOIT, ROOT, environment

PASSES = 200
NAME = "passes"
SPEC = f'''"""An operator whose kernel makes a given number of passes."""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="{NAME}",
    summary="Halve and add one, many times.",
    torch=TorchOp(name="bench_ops::{NAME}"),
    onnx=OnnxOp(domain="bench_ops", op_type="Passes"),
    inputs=(Input(name="x", type="float32", dims=("N",)),),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={{"custom": {{"float32": Tolerance(rtol=1e-6, atol=0.0)}}}},
)
'''
CASES = """from opmatrix.spec import Case, Model, Random

MODELS = (Model(name="plain", cases=(Case(name="plain", inputs={"x": Random(shape=(8,))}),)),)
"""
REFERENCE = f"""import numpy as np


def {NAME}(x):
    y = x.astype(np.float64)
    for _ in range({PASSES}):
        y = y / 2 + 1
    return y.astype(x.dtype)
"""
KERNEL = """// Halve and add one, PASSES times.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::NAME {

inline void NAME(TensorView<const float> x, TensorView<float> y) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    float value = x.data[i];
    for (int pass = 0; pass < PASSES; ++pass) value = value * 0.5F + 1.0F;
    y.data[i] = value;
  }
}

}  // namespace opmatrix::NAME
"""
BENCH = """from opmatrix.bench.spec import Bench, Row
from opmatrix.spec import Random

BENCH = Bench(rows=tuple(Row(name=f"n{n}", inputs={"x": Random(shape=(n,))}) for n in SIZES))
"""


def kernel(passes: int) -> str:
    return KERNEL.replace("NAME", NAME).replace("PASSES", str(passes))


def make(folder: Path, *, rows: int) -> Path:
    """Make the project, commit it, and return its folder."""
    files = {
        f"ops/{NAME}/spec.py": SPEC,
        f"ops/{NAME}/cases.py": CASES,
        f"ops/{NAME}/reference.py": REFERENCE,
        f"ops/{NAME}/bench.py": BENCH.replace("SIZES", repr(tuple(64 * 4**n for n in range(rows)))),
        f"native/{NAME}/kernel.h": kernel(PASSES),
        "dodo.py": (ROOT / "dodo.py").read_text(),
        "pyproject.toml": (ROOT / "pyproject.toml").read_text(),
        ".gitignore": "build/\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    author = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "as it is")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def run(project: Path, *words: str) -> tuple[int, str]:
    """Return the exit code of a comparison with HEAD, and what it printed."""
    command = [*DOIT, "bench", "--against", "HEAD", *words, NAME]
    done = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def compared(project: Path, *, threads: int) -> bool:
    """Compare the builds that a run has made once more, in this process; return whether a row is called slower."""
    from opmatrix.bench import against, measure, read, roofline
    from opmatrix.declaration.load import load_operator
    from opmatrix.project.paths import Paths

    roots = (project, Paths(project).bench_again(NAME), Paths(project).bench_shadow(NAME))
    builds = [against.Build(paths=Paths(root), operator=load_operator(Paths(root), NAME)) for root in roots]
    now = builds[0]
    job = measure.Job(
        paths=now.paths,
        operator=now.operator,
        bench=read.read(now.paths, now.operator)[0],
        budget=3.0,
        processors=measure.processors(),
        threads=(threads,),
        loops=roofline.build(now.paths),
    )
    rows = list(against.compared(job, builds))
    slower = [row for row in rows if row.get("slower")]
    if failed := [row for row in rows if row["failed"] or row["skipped"]]:
        sys.exit(f"not timed: {failed}")
    for row in slower:
        print(f"  {row['name']} in {row['side']}: {row['ratio']:.3f}, noise {row['noise']:.2%}, p {row['p']:.2g}")
    return bool(slower)


def count(project: Path, *, runs: int, threads: int, what: str) -> int:
    """Return how many comparisons call a row slower. The first is that of the command, which builds; for the others the
    same processes are started again, without building."""
    code, said = run(project, "--threads", str(threads))
    if code not in (0, 18):
        sys.exit(f"exit code {code}:\n{said}")
    found, started = int(code == 18), time.monotonic()
    for number in range(1, runs + 1):
        found += compared(project, threads=threads) if number > 1 else 0
        print(f"{what}: {found} of {number} runs call a row slower, {time.monotonic() - started:.0f} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100, help="without a change")
    parser.add_argument("--planted", type=float, default=10, help="percent of the planted slowdown")
    parser.add_argument("--planted-runs", type=int, default=20, help="with it")
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--smallest", action="store_true", help="a run of each kind: what a test runs")
    options = parser.parse_args()
    runs, planted = (1, 1) if options.smallest else (options.runs, options.planted_runs)
    with tempfile.TemporaryDirectory() as folder:
        project = make(Path(folder) / "project", rows=1 if options.smallest else options.rows)
        alarms = count(project, runs=runs, threads=options.threads, what="unchanged")
        slow = round(PASSES * (1 + options.planted / 100))
        (project / f"native/{NAME}/kernel.h").write_text(kernel(slow))
        found = count(project, runs=planted, threads=options.threads, what=f"{options.planted:g}% slower")
    print(f"false alarms: {alarms} of {runs} runs; a slowdown of {options.planted:g}% is found in {found} of {planted}")


if __name__ == "__main__":
    main()
