"""The default cells on four workers of dask.distributed, against the same run alone: the same bytes, and what it costs.

    ./run python benchmarks/cluster.py [--rounds 3] [--workers 4] [TASK ...]

All runs begin with an empty build folder and an empty cache in a folder, with as many steps at once as there are
workers. `alone` is `doit -n 4`; `local:4` starts the workers of the run; `first run` and `next run` use a scheduler and
workers that stay, each in a folder of its own. CPU seconds include those of scheduler, workers and steps. The overhead
of a step is the time from when it is handed out until its outputs are in the project, less its own seconds. The exit
code is 1 if an output differs from that of the run alone.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from measuring import DOIT, ROOT, Measured, arguments, copy_project, cpu_of_children, environment, ratio

sys.path.append(str(ROOT))  # tests.support
from tests.support.workers import Cluster

OP = "group_norm"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What each round of one kind of run cost, and the overhead of each of its steps, in seconds."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    overhead: list[float] = field(default_factory=list)
    elsewhere: list[int] = field(default_factory=list)

    @property
    def measured(self) -> Measured:
        return Measured(cpu=self.cpu, wall=self.wall)

    def __str__(self) -> str:
        if not self.overhead:
            return str(self.measured)
        median, mean = 1000 * statistics.median(self.overhead), 1000 * statistics.mean(self.overhead)
        return f"{self.measured}   {min(self.elsewhere)} steps, each +{median:.0f} ms (mean {mean:.0f})"


def cpu_of_running(processes: Sequence[subprocess.Popen[bytes]]) -> float:
    """Return the CPU seconds of processes that run on, with those of all that they started."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(path.parent.name)] = int(fields[1])
        spent[int(path.parent.name)] = sum(map(int, fields[11:15])) / _TICKS
    roots = {process.pid for process in processes}

    def is_below(pid: int) -> bool:
        while pid in parents and pid not in roots:
            pid = parents[pid]
        return pid in roots

    return sum(seconds for pid, seconds in spent.items() if is_below(pid))


def outputs(project: Path) -> Mapping[str, str]:
    """Return the digest of each output, by its path, but those of the report and of what a machine has."""
    found: dict[str, str] = {}
    with sqlite3.connect(project / "build/state.db") as state:
        for step, detail in state.execute("select name, detail from step"):
            if step.partition(":")[0] not in ("report", "environment"):
                found |= json.loads(detail)["outputs"]
    return found


def run(project: Path, store: Path, words: Sequence[str], row: Row, cluster: Cluster | None = None) -> None:
    """Run doit from nothing, and add what it cost. Ends the program if it fails."""
    for folder in (project / "build", store):
        if folder.exists():  # not removed: just after that, ext4 takes longer for new files
            folder.rename(Path(tempfile.mkdtemp(dir=project.parent)) / "old")
    events = project / "events.jsonl"
    kept = [cluster.scheduler, *cluster.workers.values()] if cluster else []
    before, start = cpu_of_children() + cpu_of_running(kept), time.perf_counter()
    shared = {"OPMATRIX_CACHE": store.as_uri(), "OPMATRIX_CACHE_MODE": "write"}
    command = [*DOIT, "-r", "jsonl", "-o", str(events), *words]
    done = subprocess.run(command, cwd=project, env={**environment(), **shared}, capture_output=True, text=True)
    row.wall.append(time.perf_counter() - start)
    row.cpu.append(cpu_of_children() + cpu_of_running(kept) - before)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    with sqlite3.connect(project / "build/state.db") as state:
        took = dict(state.execute("select name, seconds from duration"))
    ended = [event for event in map(json.loads, events.read_text().splitlines()) if event["event"] == "end"]
    elsewhere = [event for event in ended if "worker" in event.get("from", "")]
    row.overhead.extend(event["seconds"] - took[event["step"]] for event in elsewhere)
    if "--on" in words:
        row.elsewhere.append(len(elsewhere))


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("tasks", nargs="*", help="what doit runs; everything unless given")
    options = parser.parse_args()
    tasks = [f"compile:{OP}"] if options.smallest else options.tasks
    rows = {name: Row() for name in ("alone", f"local:{options.workers}", "first run", "next run")}
    with tempfile.TemporaryDirectory(prefix="opmatrix-cluster-") as temporary:
        folder = Path(temporary)
        project = copy_project(folder / "client", operator=OP if options.smallest else "")
        store, at_once = folder / "store", ("-n", str(options.workers))
        differ: list[str] = []
        expected: Mapping[str, str] = {}
        for number in range(options.rounds):
            for name, row in rows.items():
                if name == "alone":
                    run(project, store, (*at_once, *tasks), row)
                    expected = outputs(project)
                    continue
                if name == "first run":
                    cluster = Cluster(folder / f"dask{number}")
                    for worker in range(options.workers):
                        cluster.start(str(worker))
                where, kept = (name, None) if name.startswith("local") else (cluster.address, cluster)
                run(project, store, ("--on", where, *at_once, *tasks), row, kept)
                found = outputs(project)
                differ += [path for path in {*expected, *found} if expected.get(path) != found.get(path)]
            cluster.close()
    print(f"{'':14}{'CPU s':>8} {'(range)':>17} {'wall s':>8}")
    for name, row in rows.items():
        print(f"{name:14}{row}", flush=True)
    for name, row in rows.items():
        if name != "alone":
            print(f"{name}: {ratio(row.measured, rows['alone'].measured)} the CPU seconds of the run alone")
    print(
        f"outputs that differ from those of the run alone: {', '.join(sorted({*differ})) or 'none'} of {len(expected)}"
    )
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
