"""How long a run takes on N cores: a simulation with the CPU seconds of a real run, everything from nothing.

    ./run python benchmarks/schedule.py [--cores 2 8 16 32] [--events FILE]

Three ways to choose which of the ready steps gets a core:

- in the order of the plan, where a step has its core while it waits for its server: doit's way, and that of opmatrix
  before
- the longest path to the end of the run first, where only the step that starts a server has a core: that of opmatrix
- the least possible: the longest chain of steps, or all CPU seconds on all cores

A simulation, since cores that share caches and memory with other programs do not show what an order gains. The events
of another run can be given (`doit -r jsonl -o FILE`); they must be of this project.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from doit.control import TaskControl
from measuring import DOIT, copy_project, environment

from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.engine.tasks import StepTask, doit_tasks, ranks
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths


@dataclass(frozen=True, kw_only=True)
class Run:
    """The steps of a run: CPU seconds, the steps before each, its server, and the CPU seconds of servers' starts."""

    cpu: Mapping[str, float]
    before: Mapping[str, frozenset[str]]
    server: Mapping[str, str | None]
    starts: Mapping[str, float]
    rank: Mapping[str, int]

    @classmethod
    def read(cls, project: Path, events: Path) -> Run:
        found = [json.loads(line) for line in events.read_text().splitlines()]
        cpu = {e["step"]: e["cpu"] for e in found if e["event"] == "end" and "cpu" in e}
        control = TaskControl([*doit_tasks(load_or_plan(Paths(project), choice=Choice(), environ=os.environ))])
        control.process(None)
        tasks = {name: task for name, task in control.tasks.items() if name in cpu and isinstance(task, StepTask)}
        return cls(
            cpu=cpu,
            before={name: frozenset(d for d in task.task_dep if d in tasks) for name, task in tasks.items()},
            server={name: task.step.server_name for name, task in tasks.items()},
            starts={e["server"]: e["cpu"] for e in found if e["event"] == "server"},
            rank=ranks(control.tasks, cpu),
        )

    def seconds(self, cores: int, *, longest_first: bool) -> float:
        """Return how long the run takes."""
        order = self.rank if longest_first else {name: n for n, name in enumerate(self.before)}
        left = {name: set(before) for name, before in self.before.items()}
        ready = [(order[name], name) for name in left if not left[name]]
        heapq.heapify(ready)
        up: dict[str, float] = {}  # when each server is ready
        now, running, waiting = 0.0, list[tuple[float, str]](), dict[str, list[str]]()
        while ready or running:
            while ready and sum(not name.startswith("up:") for _, name in running) < cores:
                _, name = heapq.heappop(ready)
                server, begin = self.server[name], now
                if server and server not in up:
                    begin = up[server] = now + self.starts.get(server, 0.0)
                    heapq.heappush(running, (begin, f"up:{server}"))
                elif server and up[server] > now and longest_first:
                    waiting.setdefault(server, []).append(name)
                    continue
                elif server:
                    begin = max(now, up[server])
                heapq.heappush(running, (begin + self.cpu[name], name))
            now, ended = heapq.heappop(running)
            if ended.startswith("up:"):
                freed = waiting.pop(ended.removeprefix("up:"), [])
            else:
                freed = [name for name, before in left.items() if ended in before]
                for name in freed:
                    left[name].discard(ended)
                freed = [name for name in freed if not left[name]]
            for name in freed:
                heapq.heappush(ready, (order[name], name))
        return now

    def least(self, cores: int) -> float:
        """Return what no order can beat: a chain, with the start of its servers, or all seconds on all cores."""
        ends: dict[str, float] = {}
        for name in sorted(self.before, key=lambda name: -self.rank[name], reverse=True):
            start = self.starts.get(self.server[name] or "", 0.0)
            ends[name] = max([start, *(ends.get(b, 0.0) for b in self.before[name])]) + self.cpu[name]
        return max(*ends.values(), (sum(self.cpu.values()) + sum(self.starts.values())) / cores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--events", type=Path, help="of a run in this folder; else one is made in a temporary copy")
    parser.add_argument("--smallest", action="store_true", help="one operator, compiled and no more: what a test runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="opmatrix-schedule-") as folder:
        project, events = Path.cwd(), options.events
        if not events:
            project = copy_project(Path(folder), operator="group_norm" if options.smallest else "")
            events = project / "events"
            tasks = ["compile"] if options.smallest else []
            command = (*DOIT, "-r", "jsonl", "-o", str(events), *tasks)
            if subprocess.run(command, cwd=project, env=environment(), stdout=subprocess.DEVNULL).returncode:
                sys.exit(events.read_text())
        os.chdir(project)
        run = Run.read(project, events)
    print(f"{len(run.cpu)} steps, {sum(run.cpu.values()):.1f} CPU s, and {sum(run.starts.values()):.1f} of servers")
    print(f"{'cores':>5} {'plan order':>11} {'longest first':>14} {'least':>6}   seconds")
    for cores in options.cores:
        plan, longest = (run.seconds(cores, longest_first=first) for first in (False, True))
        print(f"{cores:5} {plan:11.2f} {longest:14.2f} {run.least(cores):6.2f}")


if __name__ == "__main__":
    main()
