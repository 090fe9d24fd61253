"""Compare this working tree with another revision of opmatrix, in CPU seconds of all processes.

    ./run python benchmarks/against.py d912c67 [--rounds 5] [--only no-op,edit,all]

The program clones the revision to a temporary folder, where it makes its own environment from its own pins, and clones
the working tree next to it, with uncommitted changes. Both run the operators of the revision, in turn: A B A B. The
ratio is taken pair by pair, so that changes in the machine's speed cancel.

With --smallest both run one operator in the current environment, which tests that the program works; the revision must
have the entry points of the working tree.
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

from measuring import ROOT, Measured, measure, nothing

# The limits that DEVELOPERS sets, for all issues together: CPU seconds as a multiple of the revision's.
LIMITS = {"no-op": 1.1, "edit": 1.15, "all": 1.25}
OP = "group_norm"


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


def python_of(checkout: Path, *, smallest: bool) -> tuple[str, ...]:
    """Return the command of a Python that imports the opmatrix of a checkout."""
    if smallest:
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


def empty(project: Path) -> Callable[[int], None]:
    return lambda number: shutil.rmtree(project / "build", ignore_errors=True)


def measure_pairs(kind: str, rounds: int, sides: Mapping[str, tuple[Sequence[str], Path]]) -> dict[str, Measured]:
    """Measure one kind of run on both sides in turn, after one round that is not counted."""
    prepare = {"no-op": lambda project: nothing, "edit": edit, "all": empty}[kind]
    says = {"no-op": "up to date", "edit": f"compile:{OP}", "all": "verified"}[kind]
    found: dict[str, list[Measured]] = {side: [] for side in sides}
    ready = {side: prepare(project) for side, (_, project) in sides.items()}
    for number in range(rounds + 1):
        for side, (python, project) in sides.items():
            ready[side](number)
            once = measure(1, nothing, *python, "-m", "doit", cwd=project, says=says)
            if number:
                found[side].append(once)
    return {side: Measured(cpu=[m.cpu[0] for m in ms], wall=[m.wall[0] for m in ms]) for side, ms in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(LIMITS), help="kinds of run, of: " + ", ".join(LIMITS))
    parser.add_argument("--smallest", action="store_true", help="one operator and round, in this environment")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="opmatrix-against-") as temporary:
        folder = Path(temporary)
        checkouts = {"before": clone(options.revision, folder / "before"), "now": clone(None, folder / "now")}
        sides = {}
        for side, checkout in checkouts.items():
            python, project = python_of(checkout, smallest=options.smallest), folder / f"{side}-project"
            project.mkdir()
            sides[side] = python, make_project(checkouts["before"], project, python, smallest=options.smallest)
        for python, project in sides.values():
            measure(1, nothing, *python, "-m", "doit", cwd=project, says="verified")
        print(f"{'':8} {options.revision:>10} {'now':>8}   now / {options.revision}, median (range)   allowed")
        for kind in options.only.split(","):
            # A build from nothing takes a minute on each side.
            rounds = 1 if options.smallest else max(1, options.rounds // 2) if kind == "all" else options.rounds
            found = measure_pairs(kind, rounds, sides)
            ratios = [now / before for before, now in zip(found["before"].cpu, found["now"].cpu, strict=True)]
            before, now = (statistics.median(found[side].cpu) for side in sides)
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"{kind:8} {before:10.2f} {now:8.2f}   {spread:>28}   {LIMITS[kind]}", flush=True)


if __name__ == "__main__":
    main()
