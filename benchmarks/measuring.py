"""What a command costs: CPU seconds of all processes that it started and waited for, as the kernel accounts them."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Medians with their range, in seconds."""

    cpu: list[float]
    wall: list[float]

    def __str__(self) -> str:
        cpu, wall = statistics.median(self.cpu), statistics.median(self.wall)
        return f"{cpu:8.2f} ({min(self.cpu):.2f} to {max(self.cpu):.2f}) {wall:8.2f}"


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(rounds: int, prepare: Callable[[int], None], *command: str, cwd: Path) -> Measured:
    """Run `command` `rounds` times, `prepare` before each, unmeasured."""
    cpu, wall = [], []
    for number in range(rounds):
        prepare(number)
        before, start = cpu_of_children(), time.perf_counter()
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        cpu.append(cpu_of_children() - before)
        wall.append(time.perf_counter() - start)
    return Measured(cpu=cpu, wall=wall)


def nothing(number: int) -> None:
    """Prepare nothing."""
