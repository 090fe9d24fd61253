"""Is the search free of false alarms, and is it never weak? It runs with other random inputs than `doit` draws.

    ./run python benchmarks/seeds.py
    ./run python benchmarks/seeds.py --seeds 3 --only nms --project .

For each operator of the projects and each seed: draw-inputs; the parts `search` and `gradient` of register, in torch;
and ort-fuzz, the drawn inputs in ONNX Runtime, as `doit sanitize` has it, but without a sanitizer. An operator is "red"
where one of them fails, and "weak" where the record of the search says so. `doit compile` runs first.
The columns have the worst of all seeds: CPU seconds of draw-inputs, the share of inputs that the reference rejects,
shapes that no case has, the elements of the largest input, and how many inputs were left out, mostly because the
reference is too slow.
The exit code is 1 if any is red or weak.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import DOIT, ROOT

from opmatrix.basics.errors import OpmatrixError
from opmatrix.declaration.checks import register_parts
from opmatrix.declaration.load import load_operator, operator_names
from opmatrix.ort_checks import fuzz_stage
from opmatrix.project.paths import Paths
from opmatrix.search import coverage, draw_inputs
from opmatrix.search import drawn as drawn_cases
from opmatrix.signature.signature import has_kernel
from opmatrix.torch_checks import gradient, property_test
from opmatrix.torch_ops import load
from opmatrix.torch_ops.call import torch_minor


@dataclass(frozen=True)
class Elsewhere(Paths):
    """The paths of a project whose drawn inputs are in another folder."""

    drawn: Path = Path()

    def drawn_inputs(self, name: str) -> Path:
        return self.drawn / name / "drawn.cases"


@dataclass(kw_only=True)
class Found:
    """What all seeds found of one operator."""

    operator: str
    seconds: list[float] = field(default_factory=list)
    yields: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def weak(self) -> Iterator[str]:
        for number, one in enumerate(self.yields):
            yield from (f"{self.operator}, seed {number}: weak: {why}" for why in one["weak"])

    def __str__(self) -> str:
        refused = max((one["refused"] / one["examples"] for one in self.yields), default=0.0)
        new = min((one["new_shapes"] for one in self.yields), default=0)
        large = min((max(one["large"], default=0) for one in self.yields), default=0)
        slow = max((sum(one["dropped"].values()) for one in self.yields), default=0)
        outcome = "red" if self.faults else "weak" if any(self.weak()) else "green"
        seconds = max(self.seconds, default=0.0)
        return f"{self.operator:20} {outcome:8} {seconds:5.1f} {refused:8.0%} {new:10} {large:8} {slow:8}"


HEAD = f"{'operator':20} {'':8} {'CPU s':>5} {'refused':>8} {'new shapes':>10} {'large':>8} {'left out':>8}"


def run(root: Path, name: str, seeds: int, folder: Path) -> Found:
    """Try one operator with all seeds: first what needs no library, since a library stays loaded."""
    found = Found(operator=name)
    layouts = [Elsewhere(root, drawn=folder / f"{seed}") for seed in range(seeds)]
    operator = load_operator(layouts[0], name)
    parts = register_parts(layouts[0], operator, torch_minor())
    for seed, paths in enumerate(layouts):
        began = time.process_time()
        with redirect_stderr(io.StringIO()):  # warnings of NumPy in a reference
            draw_inputs.run(paths, operator, seed=f"{seed or ''}")  # seed 0 is what doit draws
        found.seconds.append(time.process_time() - began)
        found.yields.append(coverage.measure(operator, drawn_cases.read_all(paths.drawn_inputs(name), name)))
        if "gradient" in parts:
            _check(found, seed, lambda one=paths: gradient.results(one, operator))
    for seed, paths in enumerate(layouts if "search" in parts else ()):
        _check(found, seed, lambda one=paths: property_test.run(one, operator, load.load(one, operator)))
    for seed, paths in enumerate(layouts if has_kernel(operator.spec) else ()):
        _check(found, seed, lambda one=paths: fuzz_stage.run(one, operator))
    return found


def run_in_process(root: Path, name: str, seeds: int, folder: Path) -> Found:
    """Do the same as `run` in a process of its own: a kernel that ends it is red."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        try:
            return process.submit(run, root, name, seeds, folder).result()
        except BrokenProcessPool:
            return Found(
                operator=name, faults=[f"{name}: red: its process died: ./run doit sanitize:{name} may say where"]
            )


def _check(found: Found, seed: int, check: Callable[[], object]) -> None:
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            check()
    except OpmatrixError as error:
        found.faults.append(f"{found.operator}, seed {seed}: red: {error}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="how many; seed 0 is that of doit")
    parser.add_argument("--project", type=Path, nargs="+", default=[ROOT, ROOT / "examples/borrowed"])
    parser.add_argument("--only", nargs="+", default=[], metavar="OPERATOR")
    chosen = parser.parse_args(arguments)
    wrong: list[str] = []
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for root in map(Path.resolve, chosen.project):
            done = subprocess.run([*DOIT, "compile"], cwd=root, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stdout + done.stderr)
            for name in operator_names(Paths(root)):
                if chosen.only and name not in chosen.only:
                    continue
                found = run_in_process(root, name, chosen.seeds, Path(folder))
                print(found, flush=True)
                wrong += [*found.faults, *found.weak()]
    print(*wrong, sep="\n", end="\n" * bool(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
