"""Run `doit bench --against` of an operator against itself, and count false alarms; then with a planted slowdown.

A project of one operator whose kernel does `PASSES` multiply-adds for each element. A run times the same build twice,
as a revision without a change would; `--planted 10` does 10% more of them, and counts the runs that find it. A run
judges `--rows` rows, each in torch and in ONNX Runtime, and is an alarm if any of them is called slower.

Runs in which an alarm is rarer than one in a hundred would take hours to count. So `--generations 200` times a row that
often, as a run does 6 to 18 times, and judges runs that are drawn from these: each of their rows is a stretch of
neighbouring generations, so that slow minutes of the machine stay together, or single ones.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from measuring import DOIT, ROOT, environment

from opmatrix.addons.bench import against, measure, read
from opmatrix.addons.bench.statistics import FIRST, LAST, slowdown
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths

PASSES = 200
NAME = "passes"
PROJECT = ROOT / "tests/projects/passes"
BENCH = """from opmatrix.bench.spec import Bench, Row
from opmatrix.spec import Random

BENCH = Bench(rows=tuple(Row(name=f"n{n}", inputs={"x": Random(shape=(n,))}) for n in SIZES))
"""


def plant(project: Path, *, passes: int) -> None:
    """Let the kernel make this many passes."""
    name = f"native/{NAME}/kernel.h"
    text = (PROJECT / name).read_text()
    assert f"pass < {PASSES};" in text, f"{name} makes another number of passes than {PASSES}"
    (project / name).write_text(text.replace(f"pass < {PASSES};", f"pass < {passes};"))


def make(folder: Path, *, rows: int) -> Path:
    """Make the project, commit it, and return its folder."""
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    sizes = tuple(64 * 4**n for n in range(rows))
    (folder / f"ops/{NAME}/bench.py").write_text(BENCH.replace("SIZES", repr(sizes)))
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / ".gitignore").write_text("build/\n")
    author = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "as it is")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def run(project: Path, *words: str) -> tuple[int, str]:
    """Return the exit code of a comparison with HEAD, and what it printed."""
    command = [*DOIT, "bench", "--against", "HEAD", *words, NAME]
    done = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def job_of(project: Path, *, threads: int) -> tuple[measure.Job, list[against.Build]]:
    """Return what the command does of a project, and the builds that it has made."""
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
    )
    return job, builds


def compared(project: Path, *, threads: int) -> bool:
    """Compare the builds that a run has made once more, in this process; return whether a row is called slower."""
    rows = list(against.compared(*job_of(project, threads=threads)))
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


Generation = tuple[float, float]
"""The medians of log(new / old) and of log(new again / new) of one generation."""


def generations(project: Path, *, count: int, threads: int) -> list[list[Generation]]:
    """Time the first row of an unchanged operator so many times; return what was seen in torch and ONNX Runtime."""
    job, builds = job_of(project, threads=threads)
    row, seen, chance = job.bench.rows[0], against.Seen(), random.Random(0)
    arrays = measure.inputs(job.operator, row)
    for _ in range(count):
        against.generation(job, builds, row, arrays, threads, seen, chance)
    return [list(zip(seen.changes[side], seen.noises[side], strict=True)) for side in seen.changes]


def alarm(rows: Sequence[Sequence[Generation]]) -> bool:
    """Return whether a run that sees these generations of its rows, LAST of each, calls one slower."""
    for row in rows:
        changes, noises = zip(*row, strict=True)
        for count in range(FIRST, LAST + 1):
            found = slowdown(changes[:count], noises[:count], rows=len(rows))
            if found.slower:
                return True
            if not found.undecided:
                break
    return False


def drawn(sides: Sequence[Sequence[Generation]], *, rows: int, runs: int, stretches: bool) -> float:
    """Return the share of runs, drawn from generations, with an alarm."""
    chance = random.Random(0)

    def row() -> Sequence[Generation]:
        side = chance.choice(sides)
        start = chance.randrange(len(side) - LAST + 1)
        return side[start : start + LAST] if stretches else chance.choices(side, k=LAST)

    return sum(alarm([row() for _ in range(rows)]) for _ in range(runs)) / runs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100, help="without a change")
    parser.add_argument("--planted", type=float, default=10, help="percent of the planted slowdown")
    parser.add_argument("--planted-runs", type=int, default=20, help="with it")
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--generations", type=int, default=0, help=f"of an unchanged row; {LAST} at least")
    parser.add_argument("--smallest", action="store_true", help="a run of each kind: what a test runs")
    options = parser.parse_args()
    runs, planted = (1, 1) if options.smallest else (options.runs, options.planted_runs)
    with tempfile.TemporaryDirectory() as folder:
        project = make(Path(folder) / "project", rows=1 if options.smallest else options.rows)
        if options.generations:
            run(project, "--threads", str(options.threads))  # builds
            sides = generations(project, count=options.generations, threads=options.threads)
            for side, name in zip(sides, ("torch", "ONNX Runtime"), strict=True):
                for one, what in enumerate(("change", "noise")):
                    apart = statistics.stdev(values[one] for values in side)
                    print(f"{name}: {what} of a generation {apart:.2%}, {len(side)} generations")
            for rows, stretches in itertools.product((4, 48), (True, False)):
                share = drawn(sides, rows=rows, runs=20000, stretches=stretches)
                kind = "neighbouring" if stretches else "single"
                print(f"runs of {rows} rows, drawn from {kind} generations: {share:.2%} with a false alarm")
            return
        alarms = count(project, runs=runs, threads=options.threads, what="unchanged")
        slow = round(PASSES * (1 + options.planted / 100))
        plant(project, passes=slow)
        found = count(project, runs=planted, threads=options.threads, what=f"{options.planted:g}% slower")
    print(f"false alarms: {alarms} of {runs} runs; a slowdown of {options.planted:g}% is found in {found} of {planted}")


if __name__ == "__main__":
    main()
