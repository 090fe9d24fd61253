"""Compare this working tree with another revision of opmatrix, in CPU seconds of all processes.

    ./run python benchmarks/against.py 71b51ad8 [--rounds 5] [--only no-op,edit,case,all]

The program clones the revision to a temporary folder, where it makes its own environment from its own pins, and clones
the working tree next to it, with uncommitted changes. Both run the operators of the revision, in turn: A B A B. The
ratio is taken pair by pair, so that changes in the machine's speed cancel. `case` is a further case in a model of
group_norm. For `case` and `all` a table says what each stage costs, by the events of `doit -r jsonl`; a stage that
the revision calls otherwise has a row for each name.

With --here both run in the current environment; the revision must have the entry points of the working tree. With
--smallest so does one operator, which tests that the program works.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from measuring import ROOT, Measured, by_kind, measure, nothing

# The project's limit for all its work since a revision: CPU seconds as a multiple of the revision's.
LIMIT = 1.05
KINDS = ("no-op", "edit", "case", "all")
STAGED = ("case", "all")  # whose cost is printed by stage
OP = "group_norm"
# Appended to cases.py: the last case of the first model again, whose values follow from its name.
FURTHER = """
import dataclasses

_FURTHER = dataclasses.replace(MODELS[0].cases[-1], name="further_{number}")
MODELS = (dataclasses.replace(MODELS[0], cases=(*MODELS[0].cases, _FURTHER)), *MODELS[1:])
"""


def clone(revision: str | None, folder: Path) -> Path:
    """Make a checkout of a revision, or of the working tree with its uncommitted changes."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    if revision:
        subprocess.run(["git", "checkout", "-q", revision], cwd=folder, check=True)
    else:
        command = ["git", "ls-files", "-com", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in set(listed.splitlines()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy(ROOT / name, folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
    return folder


def python_of(checkout: Path, *, here: bool) -> tuple[str, ...]:
    """Return the command of a Python that imports the opmatrix of a checkout."""
    if here:
        return "env", f"PYTHONPATH={checkout / 'pipeline'}", sys.executable
    subprocess.run(["./run", "python", "--version"], cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    return (str(checkout / ".venv/bin/python"),)


def make_project(operators: Path, folder: Path, python: Sequence[str], *, smallest: bool) -> Path:
    """Make a project with the operators of one checkout, for the opmatrix of another."""
    for operator in [OP] if smallest else [path.name for path in (operators / "ops").iterdir()]:
        shutil.copytree(operators / "ops" / operator, folder / "ops" / operator)
    for name in (path.name for path in (folder / "ops").iterdir()):
        if (operators / "native" / name).is_dir():
            shutil.copytree(operators / "native" / name, folder / "native" / name)
    for path in (folder / "ops").glob("*/cases.py"):  # gates that came later report unfinished cases, and pass them
        path.write_text(f"{path.read_text()}\n# TODO: cases of another revision\n")
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(operators / name, folder / name)
    has_update = subprocess.run([*python, "-c", "import opmatrix.commands.update"], capture_output=True, cwd=folder)
    if has_update.returncode == 0:
        subprocess.run([*python, "-m", "doit", "update"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder


def edit(project: Path) -> Callable[[int], None]:
    """Return an edit that changes the code of a kernel: a variable before its first namespace."""
    path = project / "native" / OP / "kernel.h"
    head, namespace, rest = path.read_text().partition("\nnamespace ")

    def write(number: int) -> None:
        line = f"\ninline const volatile int benchmark_edit = {os.getpid() * 1000 + number};\n"
        path.write_text(head + line + namespace + rest)

    return write


def further_case(project: Path) -> Callable[[int], None]:
    """Return an edit that adds a case to a model, in place of that of the last round."""
    path = project / "ops" / OP / "cases.py"
    text = path.read_text()
    return lambda number: path.write_text(text + FURTHER.format(number=os.getpid() * 1000 + number)) and None


def empty(project: Path) -> Callable[[int], None]:
    return lambda number: shutil.rmtree(project / "build", ignore_errors=True)


Stages = Mapping[str, Sequence[Mapping[str, float]]]
"""CPU seconds by stage of each round, for each side."""


def measure_pairs(
    kind: str, rounds: int, sides: Mapping[str, tuple[Sequence[str], Path]]
) -> tuple[dict[str, Measured], Stages]:
    """Measure one kind of run on both sides in turn, after one round that is not counted."""
    prepare = {"no-op": lambda project: nothing, "edit": edit, "case": further_case, "all": empty}[kind]
    says = {"no-op": "up to date", "edit": f"compile:{OP}"}.get(kind, "")
    needed = {"no-op": "", "edit": "", "case": "data", "all": "export"}[kind]
    found: dict[str, list[Measured]] = {side: [] for side in sides}
    stages: dict[str, list[Mapping[str, float]]] = {side: [] for side in sides}
    ready = {side: prepare(project) for side, (_, project) in sides.items()}
    for number in range(rounds + 1):
        for side, (python, project) in sides.items():
            ready[side](number)
            events = project / "events"
            options = ("-r", "jsonl", "-o", str(events)) if kind in STAGED else ()
            once = measure(1, nothing, *python, "-m", "doit", *options, cwd=project, says=says)
            by_stage = by_kind(events)[0] if options else {}
            if needed and f"step {needed}" not in by_stage:
                sys.exit(f"{kind}: no step {needed} ran in {project}")
            if number:
                found[side].append(once)
                parts = sum(by_stage.values())
                stages[side].append({**by_stage, "doit, and forks": once.cpu[0] - parts})
    pairs = {side: Measured(cpu=[m.cpu[0] for m in ms], wall=[m.wall[0] for m in ms]) for side, ms in found.items()}
    return pairs, stages


def print_stages(stages: Stages) -> None:
    """Print the medians of both sides, the dearest stage first."""
    medians = {
        side: {name: statistics.median(one.get(name, 0.0) for one in rounds) for name in set().union(*rounds)}
        for side, rounds in stages.items()
    }
    dearest = {name: max(of.get(name, 0.0) for of in medians.values()) for of in medians.values() for name in of}
    for name in sorted(dearest, key=dearest.__getitem__, reverse=True):
        print(f"  {name:22}" + "".join(f" {of.get(name, 0.0):8.2f}" for of in medians.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of run, of: " + ", ".join(KINDS))
    parser.add_argument("--here", action="store_true", help="both in this environment, for a revision that fits it")
    parser.add_argument("--smallest", action="store_true", help="one operator and round, in this environment")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="opmatrix-against-") as temporary:
        folder = Path(temporary)
        checkouts = {"before": clone(options.revision, folder / "before"), "now": clone(None, folder / "now")}
        sides = {}
        for side, checkout in checkouts.items():
            python, project = python_of(checkout, here=options.here or options.smallest), folder / f"{side}-project"
            project.mkdir()
            sides[side] = python, make_project(checkouts["before"], project, python, smallest=options.smallest)
        for python, project in sides.values():
            measure(1, nothing, *python, "-m", "doit", cwd=project, says="verified")
        print(f"{'':24} {options.revision:>8} {'now':>8}   now / {options.revision}, median (range)   allowed")
        for kind in options.only.split(","):
            # A build from nothing takes a minute on each side.
            rounds = 1 if options.smallest else max(1, options.rounds // 2) if kind == "all" else options.rounds
            found, stages = measure_pairs(kind, rounds, sides)
            ratios = [now / before for before, now in zip(found["before"].cpu, found["now"].cpu, strict=True)]
            before, now = (statistics.median(found[side].cpu) for side in sides)
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            allowed = "" if kind == "case" else LIMIT
            print(f"{kind:24} {before:8.2f} {now:8.2f}   {spread:>28}   {allowed}".rstrip(), flush=True)
            if kind in STAGED:
                print_stages(stages)


if __name__ == "__main__":
    main()
