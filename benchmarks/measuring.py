"""What a command costs: CPU seconds of all processes that it started and waited for, as the kernel accounts them."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOIT = (sys.executable, "-m", "doit")
HEAD = f"{'CPU s':>8} {'(range)':>17} {'wall s':>8}"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds of each round; shown as medians, and the range."""

    cpu: list[float]
    wall: list[float]

    def __str__(self) -> str:
        spread = f"({min(self.cpu):.2f} to {max(self.cpu):.2f})"
        return f"{statistics.median(self.cpu):8.2f} {spread:>17} {statistics.median(self.wall):8.2f}"


def ratio(more: Measured, less: Measured) -> str:
    """Return how many times the CPU seconds: of the medians, and between the nearest and the farthest rounds."""
    low, high = min(more.cpu) / max(less.cpu), max(more.cpu) / min(less.cpu)
    return f"{statistics.median(more.cpu) / statistics.median(less.cpu):.1f} times ({low:.1f} to {high:.1f})"


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def environment() -> Mapping[str, str]:
    """Return the environment of a command. As `./run` does, for else each command compiles all of Python it imports."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure(rounds: int, prepare: Callable[[int], object], *command: str, cwd: Path, says: str = "") -> Measured:
    """Run `command` `rounds` times, `prepare` before each, unmeasured. Each must say `says`: that it did its work."""
    cpu, wall = [], []
    for number in range(rounds):
        prepare(number)
        before, start = cpu_of_children(), time.perf_counter()
        done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True)
        if done.returncode or says not in done.stdout:
            sys.exit(f"{' '.join(command)} failed, or did not say {says!r}:\n{done.stdout}{done.stderr}")
        cpu.append(cpu_of_children() - before)
        wall.append(time.perf_counter() - start)
    return Measured(cpu=cpu, wall=wall)


def nothing(number: int) -> None:
    """Prepare nothing."""
