"""The edit loop in CPU seconds of all processes, compared with the same loop by hand, as the seeds describe it.

    ./run python benchmarks/loop.py [--rounds 5]

Each row is measured in the same run, in a copy of the project under a temporary folder. CPU seconds are user plus
system time of every process that the command started and waited for, as the kernel accounts them.

The seeds' loop is what their tutorials describe (peer/): build both libraries, export, run; each a Python process of
its own. It verifies one case of one model in one cell; opmatrix verifies every case of every model in all default
cells, and checks the kernel in torch.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measuring import DOIT, HEAD, ROOT, Measured, arguments, copy_project, measure, nothing, ratio

PEER = ROOT / "benchmarks" / "peer"
OP = "group_norm"
# The measured loops: opmatrix and the seeds.
COLD, BUILD = "cold build of both libraries", "the seeds' build"
LIBRARIES = "kernel edit to both libraries"
CELLS, LOOP = "kernel edit to verified in all default cells", "the seeds' loop: build, export, run one cell"
PAIRS = ((COLD, BUILD), (LIBRARIES, BUILD), (CELLS, LOOP))
LOWERING = "lowering edit to exported anew and verified"
# What every program above needs.
FLOOR = ("ninja, compiler and linker alone, on that edit", "Python alone, importing doit")


def edit(*paths: Path) -> Callable[[int], None]:
    """Return an edit that changes the code of sources, not only their text: a variable before the first namespace."""
    edits = itertools.count()  # not the number of the round: two rows of one round need different edits
    originals = {path: path.read_text().partition("\nnamespace ") for path in paths}

    def write(number: int) -> None:
        line = f"\ninline const volatile int benchmark_edit = {os.getpid() * 1000 + next(edits)};\n"
        for path, (head, namespace, rest) in originals.items():
            path.write_text(head + line + namespace + rest)

    return write


def by_hand(peer: Path, headers: Path) -> tuple[list[str], list[str]]:
    """Return the commands of the seeds' build, and of their whole loop."""
    programs = [f"{sys.executable} {PEER / name}.py {peer}" for name in ("build", "export", "verify")]
    programs[0] += f" {headers}"
    return ["sh", "-c", programs[0]], ["sh", "-c", " && ".join(programs)]


def rows(rounds: int, folder: Path, *, smallest: bool = False) -> dict[str, Measured]:
    project, peer = copy_project(folder, operator=OP), folder / "peer"
    shutil.copytree(PEER, peer)
    print("making both once ...", flush=True)
    doit = (*DOIT, "compile") if smallest else DOIT
    measure(1, nothing, *doit, cwd=project)
    build, loop = by_hand(peer, ROOT / "pipeline/opmatrix/toolchain/onnxruntime")
    if not smallest:
        measure(1, nothing, *loop, cwd=peer)
    ours = edit(project / "native" / OP / "kernel.h")
    theirs = edit(peer / "group_norm_torch.cpp", peer / "group_norm_ort.cc")

    lowering = project / "ops" / OP / "lowering.py"
    before, shape, after = lowering.read_text().partition('g.op("Shape", x)')

    def lowered(number: int) -> None:
        more = 1 + number % 2  # nodes that change each model, but none of its results
        lowering.write_text(before + shape.replace("x", 'g.op("Identity", ' * more + "x" + ")" * more) + after)

    def fresh(number: int) -> None:
        shutil.rmtree(project / "build" / "compile")

    found = {}
    compiled = "-c " + str(peer / "group_norm_torch.cpp")
    built = project / "build" / "compile" / OP
    for name, prepare, command, says in (
        ("nothing to do", nothing, doit, "all up to date"),
        (COLD, fresh, [sys.executable, "-m", "opmatrix", "compile", OP], "ninja"),
        (LIBRARIES, ours, [*DOIT, "compile"], f"s compile:{OP}\n"),
        (FLOOR[0], ours, ["ninja", "-v", "-C", str(built)], f"lib{OP}_ort.so"),
        (FLOOR[1], nothing, [sys.executable, "-c", "import doit.doit_cmd, doit.cmd_run"], ""),
        (BUILD, theirs, build, compiled),
        (CELLS, ours, DOIT, f"s verify:{OP}-custom@"),
        (LOOP, theirs, loop, compiled),
        (LOWERING, lowered, DOIT, f"s verify:{OP}-decomposed@"),
    ):
        if smallest and name in (BUILD, CELLS, LOOP, LOWERING):
            continue
        print(f"measuring: {name} ...", flush=True)
        count = min(rounds, 3) if "seeds" in name else rounds
        found[name] = measure(count, prepare, *command, cwd=project, says=says)
    return found


def main() -> None:
    options = arguments(__doc__, rounds=5).parse_args()
    with tempfile.TemporaryDirectory(prefix="opmatrix-benchmark-") as folder:
        found = rows(options.rounds, Path(folder), smallest=options.smallest)
    print(f"\n{'':46} {HEAD}")
    for name, measured in found.items():
        print(f"{name:46} {measured}")
    print()
    for ours, theirs in PAIRS if not options.smallest else ():
        print(f"{theirs} / {ours}: {ratio(found[theirs], found[ours])} the CPU seconds")


if __name__ == "__main__":
    main()
