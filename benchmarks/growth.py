"""What `doit` with nothing to do costs, as operators and cells grow: seconds and memory, compared with plain doit.

    ./run python benchmarks/growth.py [--operators 1 10 100 323] [--opsets default all] [--rounds 5] [--plot FILE.svg]

The operators are synthetic: copies of one declaration, planned like any other, in all default cells or in all cells.
Their steps do not run: the program writes a few bytes to each of their files, and records the state as the runner does.
Plain doit gets as many tasks, with the same files and its own checker and database.

The slope is that of the straight line nearest to the rows (least squares). "planned anew" is the run after an edit of a
declaration or of the settings; every other run reads the cached plan. With --edit, the rows are an edit of a real
kernel, until its operator is verified again, alone and among the synthetic ones.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop import edit
from measuring import DOIT, ROOT, Measured, environment, measure, nothing
from plot import render

OP = "group_norm"
SPEC = """
from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="op_{n}",
    summary="Copy x.",
    torch=TorchOp(name="synthetic::op_{n}"),
    onnx=OnnxOp(domain="synthetic.domain", op_type="Op{n}"),
    inputs=(Input(name="x", type="float32", dims=("N", "C")),),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={{"custom": {{"float32": Tolerance(rtol=0.0, atol=0.0)}}}},
)
"""
CASES = """
from opmatrix.spec import Case, Model, Random

MODELS = (
    Model(name="static", types={}, cases=(Case(name="small", inputs={"x": Random(shape=(2, 3))}),)),
)
"""
# The benchmark writes this into a project: it does what the runner does after a step has succeeded.
RECORD = """
import os
import sys
from pathlib import Path

from opmatrix.project.paths import Paths
from opmatrix.project.cells import Choice
from opmatrix.engine.database import Journal
from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.engine.up_to_date import State
from opmatrix.engine.tasks import DEFAULT, StepTask, doit_tasks

paths = Paths(Path.cwd())
steps = load_or_plan(paths, choice=Choice(opsets=sys.argv[1]), environ=os.environ)
steps = [step for step in steps if step.group in DEFAULT]
for path in (path for step in steps for path in step.writes):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(path)
for path in (path for step in steps for path in step.links):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).symlink_to("data")
journal = Journal(str(paths.state), None)
tasks = list(doit_tasks(load_or_plan(paths, choice=Choice(opsets=sys.argv[1]), environ=os.environ)))
state = State(journal, root=paths.root, tasks=tasks)
journal._database.execute("begin")
for task in tasks:
    if isinstance(task, StepTask) and task.step.group in DEFAULT:
        state.get_status(task, {})
        state.save_success(task)
journal._database.execute("commit")
state.close()
print(len(steps))
"""
PLAIN = """
import pickle

DOIT_CONFIG = {"dep_file": "plain.db"}


def task_step():
    with open("plain.pickle", "rb") as file:
        steps = pickle.load(file)
    for name, reads, writes in steps:
        yield {"name": name, "actions": None if not writes else ["true"], "file_dep": reads, "targets": writes}
"""
DUMP = """
import os
import pickle
import sys
from pathlib import Path

from opmatrix.project.paths import Paths
from opmatrix.project.cells import Choice
from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.engine.tasks import DEFAULT

plan = load_or_plan(Paths(Path.cwd()), choice=Choice(opsets=sys.argv[1]), environ=os.environ)
steps = [step for step in plan if step.group in DEFAULT]
Path("plain.pickle").write_bytes(pickle.dumps([(s.task, list(s.reads), list(s.writes)) for s in steps]))
"""


def make_project(folder: Path, operators: int) -> None:
    """Write a project of synthetic operators."""
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("include", "binding"):
        shutil.copytree(ROOT / "native" / name, folder / "native" / name)
    for n in range(operators):
        files = {
            f"ops/op_{n}/spec.py": SPEC.format(n=n),
            f"ops/op_{n}/cases.py": CASES,
            f"ops/op_{n}/reference.py": f"def op_{n}(x): return x\n",
            f"native/op_{n}/kernel.h": "#pragma once\n",
        }
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)


@dataclass(frozen=True, kw_only=True)
class Row:
    """The cost of a run with nothing to do, for this number of steps; `memory` in MB."""

    operators: int
    opsets: str
    steps: int
    ours: Measured
    anew: Measured
    memory: float
    plain: Measured
    plain_memory: float

    def __str__(self) -> str:
        cpu = [statistics.median(m.cpu) for m in (self.ours, self.anew, self.plain)]
        return (
            f"{self.operators:>9} {self.opsets:>8} {self.steps:>6} | {self.ours} {self.memory:6.0f} | {cpu[1]:8.2f}"
            f" | {cpu[2]:8.2f} {statistics.median(self.plain.wall):8.2f} {self.plain_memory:6.0f}"
        )


HEAD = (
    f"{'':25} | {'opmatrix':41} | {'planned':>8} | plain doit\n"
    f"operators   opsets  steps |    CPU s           (range)   wall s     MB |     anew |    CPU s   wall s     MB"
)


def run(code: str, folder: Path, opsets: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, opsets], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def memory(*command: str, cwd: Path) -> float:
    """Return the largest resident set of a command, in MB."""
    process = subprocess.Popen(command, cwd=cwd, env=environment(), stdout=subprocess.DEVNULL)
    return os.wait4(process.pid, 0)[2].ru_maxrss / 1024


def row(folder: Path, *, operators: int, opsets: str, rounds: int) -> Row:
    make_project(folder, operators)
    steps = int(run(RECORD, folder, opsets))
    time.sleep(0.1)  # until all file hashes are trusted
    command = (*DOIT, f"opsets={opsets}")
    measure(1, nothing, *command, cwd=folder, says=f"{steps} steps, all up to date")
    ours = measure(rounds, nothing, *command, cwd=folder, says="all up to date")
    size = memory(*command, cwd=folder)
    settings = folder / "pyproject.toml"
    anew = measure(
        max(1, rounds // 2), lambda n: settings.write_text(settings.read_text() + "\n"), *command, cwd=folder
    )
    run(DUMP, folder, opsets)
    (folder / "plain.py").write_text(PLAIN)
    settings.unlink()
    plain_doit = (*DOIT, "-f", "plain.py")
    measure(1, nothing, *plain_doit, cwd=folder)
    plain = measure(rounds, nothing, *plain_doit, cwd=folder)
    return Row(
        operators=operators,
        opsets=opsets,
        steps=steps,
        ours=ours,
        anew=anew,
        memory=size,
        plain=plain,
        plain_memory=memory(*plain_doit, cwd=folder),
    )


def edited(folder: Path, *, operators: int, rounds: int) -> Measured:
    """Return what an edit of group_norm's kernel costs among synthetic operators, which are up to date."""
    make_project(folder, operators)
    run(RECORD, folder, "default")
    for name in ("ops", "native"):
        shutil.copytree(ROOT / name / OP, folder / name / OP, ignore=shutil.ignore_patterns("__pycache__"))
    command = (*DOIT, "-n", "2", OP)
    measure(1, nothing, *command, cwd=folder)
    return measure(rounds, edit(folder / "native" / OP / "kernel.h"), *command, cwd=folder, says=" run, ")


def slope(rows: Sequence[Row], value: Callable[[Row], float]) -> tuple[float, float]:
    """Return the cost of 1000 more steps, and that of no steps."""
    line = statistics.linear_regression([r.steps for r in rows], [value(r) for r in rows])
    return line.slope * 1000, line.intercept


def slopes(rows: Sequence[Row]) -> str:
    found = []
    for name, cpu, size in (
        ("opmatrix", lambda r: r.ours.cpu, lambda r: r.memory),
        ("plain doit", lambda r: r.plain.cpu, lambda r: r.plain_memory),
    ):
        (seconds, least), (megabytes, smallest) = (
            slope(rows, lambda r, c=cpu: statistics.median(c(r))),
            slope(rows, size),
        )
        found.append(
            f"{name}: {least:.2f} CPU s + {seconds:.4f} ms a step;"
            f" {smallest:.0f} MB + {megabytes:.1f} MB a thousand steps"
        )
    return "\n".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", type=int, nargs="+", default=[1, 10, 100, 323], help="such as 1000")
    parser.add_argument("--opsets", nargs="+", default=["default"], help="default, all, or such as 18,20")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", type=Path, help="an SVG to write: CPU seconds against steps")
    parser.add_argument("--edit", action="store_true", help="a kernel's edit among the operators, and nothing else")
    options = parser.parse_args()
    if options.edit:
        for operators in (0, *options.operators):
            with tempfile.TemporaryDirectory(prefix="opmatrix-growth-") as folder:
                found = edited(Path(folder), operators=operators, rounds=options.rounds)
            print(f"a kernel's edit among {operators:>5} other operators: {found}", flush=True)
        return
    rows = []
    print(HEAD)
    for opsets in options.opsets:
        for operators in options.operators:
            with tempfile.TemporaryDirectory(prefix="opmatrix-growth-") as folder:
                found = row(Path(folder), operators=operators, opsets=opsets, rounds=options.rounds)
            rows.append(found)
            print(found, flush=True)
    if len({r.steps for r in rows}) > 1:
        print(f"\n{slopes(rows)}")
    if options.plot:
        lines = {
            "opmatrix": [(r.steps, statistics.median(r.ours.cpu)) for r in rows],
            "plain doit": [(r.steps, statistics.median(r.plain.cpu)) for r in rows],
        }
        options.plot.write_text(render("nothing to do: CPU seconds against steps", lines))


if __name__ == "__main__":
    main()
