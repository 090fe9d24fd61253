"""From a kernel's save to its verdict: `doit watch`, and a `doit` that starts anew, in turn in the same run.

    ./run python benchmarks/watch.py [--rounds 7]

Two equal projects of one operator are built; one of them is watched. Each round edits the kernel of both, one after the
other. Wall seconds count from the save to the last line, for a cold doit from its start. "ours" is what remains of it
without the steps, and so without the compiler. The shared cache is off. Then many saves that run nothing show whether
the resident process grows. The exit code is 1 where a goal is missed: 0.6 of the wall seconds, 0.25 s ours, no growth.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from loop import edit
from measuring import DOIT, arguments, copy_project, environment

OP = "group_norm"
WALL, OURS, GROWTH = 0.6, 0.25, 1.0  # of a cold doit; seconds; MB
_QUIET = 0.3  # seconds before a save, so that nothing is left of the last run


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Seconds of one run. `start`: until its first step began; `ours`: without the steps."""

    wall: float
    start: float
    ours: float
    steps: int


def turn(saved: float, lines: IO[str]) -> Turn:
    """Read the events of one run up to its last."""
    began, steps, first = set(), 0.0, 0.0
    for line in lines:
        event = json.loads(line)
        if event["event"] == "start":
            first = first or time.time() - saved
            began.add(event["step"])
        elif event["event"] == "end" and event["step"] in began:
            if event["outcome"] != "succeeded":
                sys.exit(f"{event['step']} {event['outcome']}: {event.get('reason')}")
            steps += event["seconds"]
        elif event["event"] == "finish":
            wall = time.time() - saved
            return Turn(wall=wall, start=first, ours=wall - steps, steps=len(began))
    sys.exit("doit ended without its last event")


def start(project: Path, command: str, tasks: Sequence[str]) -> subprocess.Popen[str]:
    environ = {**environment(), "OPMATRIX_CACHE": "off"}
    words = [*DOIT, command, "-r", "jsonl", *tasks]
    return subprocess.Popen(words, cwd=project, env=environ, stdout=subprocess.PIPE, text=True)


def cold(project: Path, save: Callable[[int], None], tasks: Sequence[str]) -> Turn:
    save(0)
    saved = time.time()
    process = start(project, "run", tasks)
    assert process.stdout
    found = turn(saved, process.stdout)
    process.wait()
    return found


def warm(watch: subprocess.Popen[str], save: Callable[[int], None]) -> Turn:
    assert watch.stdout
    save(0)
    return turn(time.time(), watch.stdout)


def megabytes(process: int) -> float:
    """Return the memory of a process that is its own, which no other process shares."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:])
    return sum(float(rows[name].split()[0]) for name in ("Private_Clean", "Private_Dirty", "Shared_Dirty")) / 1e3


def shown(name: str, turns: Sequence[Turn]) -> str:
    def of(values: Sequence[float]) -> str:
        return f"{statistics.median(values):6.2f} ({min(values):.2f} to {max(values):.2f})"

    return (
        f"{name:12}{of([t.wall for t in turns]):>24}{of([t.start for t in turns]):>24}{of([t.ours for t in turns]):>24}"
    )


def measure(folder: Path, *, rounds: int, turns: int, tasks: Sequence[str]) -> bool:
    """Print what was measured, and return whether each goal is met."""
    watched = copy_project(folder / "watched", operator=OP)
    print("building both ...", flush=True)
    cold(watched, lambda _: None, tasks)
    plain = folder / "plain/project"
    shutil.copytree(watched, plain, symlinks=True)
    watch = start(watched, "watch", tasks)
    try:
        assert watch.stdout
        turn(time.time(), watch.stdout)
        kernels = [edit(project / "native" / OP / "kernel.h") for project in (plain, watched)]
        found: dict[str, list[Turn]] = {"doit": [], "doit watch": []}
        for number in range(rounds + 1):
            time.sleep(_QUIET if number else 5)  # the servers start in the background of the first turn
            pair = cold(plain, kernels[0], tasks), warm(watch, kernels[1])
            if number:  # the first pair reads files that are in no cache of the Linux kernel
                for turns_of, one in zip(found.values(), pair, strict=True):
                    turns_of.append(one)
        before, note = megabytes(watch.pid), watched / "ops" / OP / "note.txt"
        for number in range(turns):
            warm(watch, lambda _, n=number: note.write_text(f"{n}\n") and None)
        after = megabytes(watch.pid)
    finally:
        watch.send_signal(signal.SIGINT)
        watch.wait()
    print(f"\n{'':12}{'wall s':>24}{'to the first step':>24}{'ours':>24}")
    print("\n".join(shown(name, of) for name, of in found.items()))
    print(f"steps: {', '.join(f'{of[0].steps} ({name})' for name, of in found.items())}\n")
    pairs = [w.wall / c.wall for c, w in zip(*found.values(), strict=True)]
    wall, ours = statistics.median(pairs), statistics.median(t.ours for t in found["doit watch"])
    print(f"doit watch / doit: {wall:.2f} of the wall seconds ({min(pairs):.2f} to {max(pairs):.2f}); goal: {WALL}")
    print(f"ours in doit watch: {ours:.2f} s; goal: {OURS}")
    print(f"resident process: {before:.1f} MB, after {turns} more turns {after:.1f} MB; goal: {GROWTH} MB more at most")
    return wall <= WALL and ours <= OURS and after - before <= GROWTH


def main() -> int:
    parser = arguments(__doc__, rounds=7)
    parser.add_argument("--turns", type=int, default=50, help="that run nothing, for the memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="opmatrix-benchmark-") as folder:
        tasks = ["compile"] if options.smallest else []
        met = measure(Path(folder), rounds=options.rounds, turns=options.turns, tasks=tasks)
    return 0 if met or options.smallest else 1


if __name__ == "__main__":
    sys.exit(main())
