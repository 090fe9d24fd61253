"""A matrix divided over several jobs with one shared cache, in CPU seconds of all their processes.

    ./run python benchmarks/shards.py [--shards 5] [--environments .venv-matrix] [torch=all ort=all]

Each job is a clone in a folder of its own, and all shards begin together. The rows: one clone without a cache; the sum
of all shards; all shards again, each in a fresh clone, from the full cache; the report of another clone that has
neither environments nor results. `--environments` is a folder of environments to use instead of making them: each
clone links to what is installed there.

A step that two shards computed is listed, and how far the longest and the shortest shard are from their mean.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from measuring import DOIT, ROOT, by_kind, copy_project, environment

LIMITS = {"all shards": 1.1, "all shards again": 20.0}  # the second in CPU s
_KINDS = 8  # rows of what the shards add, of the most
KEPT_BY_A_CLONE = ("package", "versions", "packages.txt")  # of an environment: what opmatrix writes into it


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run in a clone: CPU and wall seconds, the steps that it computed."""

    cpu: float
    wall: float
    computed: tuple[str, ...]
    kinds: Mapping[str, float]  # CPU seconds by groups of steps and by servers


def clone(folder: Path, *, operator: str, environments: Path | None) -> Path:
    project = copy_project(folder, operator=operator)
    for made in environments.iterdir() if environments else ():
        if (made / "stamp").is_dir():
            own = project / ".venv-matrix" / made.name
            own.mkdir(parents=True)
            for part in made.iterdir():
                if part.name not in KEPT_BY_A_CLONE:
                    (own / part.name).symlink_to(part)
    return project


def run(jobs: Sequence[tuple[Path, Sequence[str]]], *, cache: Path | None, in_turn: bool = False) -> list[Job]:
    """Run doit in several clones at the same time, or one after the other. Ends the program if one fails."""
    if in_turn:
        return [job for one in jobs for job in run([one], cache=cache)]
    shared = {"OPMATRIX_CACHE": cache.as_uri() if cache else "off", "OPMATRIX_CACHE_MODE": "write"}
    began, running = time.perf_counter(), []
    for project, words in jobs:
        command = [*DOIT, "-r", "jsonl", "-o", "events.jsonl", "-n", "2", *words]
        with (project / "output").open("w") as output:
            process = subprocess.Popen(
                command, cwd=project, env={**environment(), **shared}, stdout=output, stderr=output
            )
        running.append((process.pid, project))
    found = []
    for pid, project in running:
        _, status, usage = os.wait4(pid, 0)
        if status:
            sys.exit(f"doit failed in {project}:\n{(project / 'output').read_text()}{_last(project)}")
        events = [json.loads(line) for line in (project / "events.jsonl").read_text().splitlines()]
        ended = [event for event in events if event["event"] == "end" and event["outcome"] == "succeeded"]
        computed = tuple(event["step"] for event in ended if "from" not in event)
        cpu, kinds = usage.ru_utime + usage.ru_stime, by_kind(project / "events.jsonl")[0]
        kinds = {**kinds, "doit, and forks": cpu - sum(kinds.values())}
        found.append(Job(cpu=cpu, wall=time.perf_counter() - began, computed=computed, kinds=kinds))
    return found


def _last(project: Path) -> str:
    events = project / "events.jsonl"
    lines = events.read_text().splitlines() if events.is_file() else []
    return "\n".join([line for line in lines if '"failed"' in line][:5])


def row(name: str, jobs: Sequence[Job], note: str = "") -> float:
    cpu = sum(job.cpu for job in jobs)
    computed = sum(len(job.computed) for job in jobs)
    print(f"{name:18} {cpu:8.1f} {max(job.wall for job in jobs):8.1f} {computed:9}  {note}", flush=True)
    return cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shards", type=int, default=5)
    parser.add_argument("--environments", type=Path, help="a folder such as .venv-matrix")
    parser.add_argument("--in-turn", action="store_true", help="one shard after the other, as if each were alone")
    parser.add_argument("--smallest", action="store_true", help="one operator, at one opset, in two shards")
    parser.add_argument("choice", nargs="*", help="such as torch=2.9,2.13 opsets=18; without it torch=all ort=all")
    options = parser.parse_args()
    operator, count = ("group_norm", 2) if options.smallest else ("", options.shards)
    choice = options.choice or (["opsets=18"] if options.smallest else ["torch=all", "ort=all"])
    environments = options.environments or (ROOT / ".venv-matrix" if (ROOT / ".venv-matrix").is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="opmatrix-shards-") as name:
        folder, cache = Path(name), Path(name) / "cache"

        def clones(what: str, number: int) -> list[Path]:
            made = [folder / f"{what}{n}" for n in range(1, number + 1)]
            return [clone(path, operator=operator, environments=environments) for path in made]

        shards = [[*choice, "--shard", f"{number}/{count}"] for number in range(1, count + 1)]
        print(f"{' '.join(choice)}, {count} shards\n\n{'':18} {'CPU s':>8} {'wall s':>8} {'computed':>9}")
        one = run([(clones("alone", 1)[0], choice)], cache=None)
        alone = row("one machine", one)
        first = run([*zip(clones("shard", count), shards, strict=True)], cache=cache, in_turn=options.in_turn)
        mean = sum(job.cpu for job in first) / count
        spread = [min(job.cpu for job in first) / mean, max(job.cpu for job in first) / mean]
        together = row("all shards", first, f"{spread[0]:.2f} to {spread[1]:.2f} of their mean")
        added = {kind: sum(job.kinds.get(kind, 0.0) for job in first) - one[0].kinds.get(kind, 0.0)
                 for kind in {kind for job in (*one, *first) for kind in job.kinds}}  # fmt: skip
        for kind, cpu in sorted(added.items(), key=lambda item: -abs(item[1]))[:_KINDS]:
            print(f"  {cpu:+6.1f} {kind}")
        again = run([*zip(clones("again", count), shards, strict=True)], cache=cache)
        row("all shards again", again)
        report = clone(folder / "report", operator=operator, environments=None)
        row("the report", run([(report, [*choice, "--from-cache"])], cache=cache))
    of_machine = ("report", "environment")
    times = Counter(step for job in first for step in job.computed if step.partition(":")[0] not in of_machine)
    twice = sorted(step for step, number in times.items() if number > 1)
    print(f"\ncomputed twice: {', '.join(twice) or 'nothing'}")
    print(f"all shards: {together / alone:.2f} times one machine, goal {LIMITS['all shards']}; again: "
          f"{sum(job.cpu for job in again):.1f} CPU s, goal {LIMITS['all shards again']:.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
