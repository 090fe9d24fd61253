"""What a command costs: CPU seconds of all processes that it started and waited for, as the kernel accounts them."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
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
    """Return the ratio of the CPU seconds: of the medians, and of the nearest and the farthest rounds."""
    low, high = min(more.cpu) / max(less.cpu), max(more.cpu) / min(less.cpu)
    return f"{statistics.median(more.cpu) / statistics.median(less.cpu):.1f} times ({low:.1f} to {high:.1f})"


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def environment() -> Mapping[str, str]:
    """Return a command's environment, as `./run` sets it: else each command compiles all Python that it imports."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure(rounds: int, prepare: Callable[[int], object], *command: str, cwd: Path, says: str = "") -> Measured:
    """Measure `rounds` runs of `command`, after an unmeasured `prepare`. Each run must print `says`."""
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


def by_kind(events: Path) -> tuple[Mapping[str, float], Mapping[str, int]]:
    """Return CPU seconds and number of the steps of each group, and of the servers' starts."""
    cpu: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    for event in map(json.loads, events.read_text().splitlines()):
        if "cpu" in event:
            kind = f"server {event['server']}" if event["event"] == "server" else f"step {event['step'].split(':')[0]}"
            cpu[kind] += event["cpu"]
            count[kind] += 1
    return cpu, count


def copy_project(folder: Path, *, operator: str = "") -> Path:
    """Copy the handwritten files of every operator, or of one."""
    project = folder / "project"
    for name in (f"ops/{operator}", f"native/{operator}", "native/include", "native/binding"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, project / name, ignore=ignored, dirs_exist_ok=True)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(ROOT / name, project / name)
    return project


def arguments(doc: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the options of the programs that build; `doc` is the program's own description."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--smallest", action="store_true", help="one operator, compiled and no more: what a test runs")
    return parser


def nothing(number: int) -> None:
    """Prepare nothing."""
