"""What `doit` with nothing to do costs, as operators and cells grow: seconds and memory, beside plain doit.

    ./run python benchmarks/growth.py [--operators 1 10 100 370] [--rounds 5]

The operators are synthetic: copies of one declaration, planned as any other, in all default cells. No step of theirs is
carried out: their files are written with a few bytes each, and the state is recorded as the runner records it. Plain
doit gets as many tasks, with the same files and its own checker and database.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import measure, nothing

ROOT = Path(__file__).resolve().parent.parent

SPEC = """
from pipeline.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

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
from pipeline.spec import Case, Model, Random

MODELS = (
    Model(name="static", types={}, cases=(Case(name="small", inputs={"x": Random(shape=(2, 3))}),)),
)
"""
# Written by this benchmark into a project: it does what the runner does after a step has succeeded.
RECORD = """
import os
import sys
from pathlib import Path

from pipeline.layout import Layout
from pipeline.runner.journal import Journal
from pipeline.runner.planned import planned
from pipeline.runner.state import State
from pipeline.runner.tasks import StepTask, doit_tasks

layout = Layout(Path.cwd())
steps = planned(layout, opsets="default", environ=os.environ)
for path in (path for step in steps for path in step.writes):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(path)
journal = Journal(str(layout.state), None)
tasks = list(doit_tasks(planned(layout, opsets="default", environ=os.environ)))
state = State(journal, root=layout.root, tasks=tasks)
journal._database.execute("begin")
for task in tasks:
    if isinstance(task, StepTask):
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
from pathlib import Path

from pipeline.layout import Layout
from pipeline.runner.planned import planned

steps = planned(Layout(Path.cwd()), opsets="default", environ=os.environ)
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


def run(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def memory(*command: str, cwd: Path) -> float:
    """Return the largest resident set of a command, in MB."""
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL)
    return os.wait4(process.pid, 0)[2].ru_maxrss / 1024


def row(folder: Path, operators: int, rounds: int) -> str:
    make_project(folder, operators)
    steps = int(run(RECORD, folder))
    time.sleep(0.1)  # until every file counts as settled
    doit = [sys.executable, "-m", "doit"]
    first = subprocess.run(doit, cwd=folder, capture_output=True, text=True).stdout
    if f"{steps} steps, all up to date" not in first:
        sys.exit(f"something was to be done:\n{first[-2000:]}")
    ours = measure(rounds, nothing, *doit, cwd=folder)
    size = memory(*doit, cwd=folder)
    settings = folder / "pyproject.toml"
    anew = measure(max(1, rounds // 2), lambda n: settings.write_text(settings.read_text() + "\n"), *doit, cwd=folder)
    run(DUMP, folder)
    (folder / "plain.py").write_text(PLAIN)
    plain_doit = [sys.executable, "-m", "doit", "-f", "plain.py"]
    (folder / "pyproject.toml").unlink()
    measure(1, nothing, *plain_doit, cwd=folder)
    plain = measure(rounds, nothing, *plain_doit, cwd=folder)
    cells = (f"{operators:>9}", f"{steps:>7}", str(ours), f"{size:6.0f}", str(anew), str(plain))
    return "  ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", type=int, nargs="+", default=[1, 10, 100, 370])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for operators in options.operators:
        with tempfile.TemporaryDirectory(prefix="opmatrix-growth-") as folder:
            print(row(Path(folder), operators, options.rounds), flush=True)


if __name__ == "__main__":
    main()
