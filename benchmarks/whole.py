"""The cost of a build from an empty build folder, in CPU seconds: all operators, all default cells, by kind of step.

    ./run python benchmarks/whole.py [--rounds 3]

The kernel accounts the total to doit and all processes that it started; steps and servers report their own in the
run's events (`doit -r jsonl`). The rest of the total is doit itself and the servers' forks.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

from measuring import DOIT, Measured, arguments, by_kind, copy_project, measure

GOAL = 150  # CPU seconds
# The part of an export that is listed separately below.
EXPORTERS = ("step export", "server export")


def rounds_of(rounds: int, project: Path, *tasks: str) -> tuple[Measured, list[Mapping[str, float]], Mapping[str, int]]:
    events, kinds = project / "events", []
    command = (*DOIT, "-r", "jsonl", "-o", str(events), *tasks)

    def empty(number: int) -> None:
        shutil.rmtree(project / "build", ignore_errors=True)

    found = []
    for _ in range(rounds):
        found.append(measure(1, empty, *command, cwd=project))
        cpu, count = by_kind(events)
        kinds.append(cpu)
    total = Measured(cpu=[m.cpu[0] for m in found], wall=[m.wall[0] for m in found])
    return total, kinds, count


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    operator, tasks = ("group_norm", ["compile"]) if options.smallest else ("", [])
    with tempfile.TemporaryDirectory(prefix="opmatrix-whole-") as folder:
        total, kinds, count = rounds_of(options.rounds, copy_project(Path(folder), operator=operator), *tasks)
    print(f"{'':22} {'number':>6} {'CPU s':>8}")
    medians = {kind: statistics.median(found[kind] for found in kinds) for kind in kinds[0]}
    for kind, seconds in sorted(medians.items(), key=lambda item: -item[1]):
        print(f"{kind:22} {count[kind]:>6} {seconds:8.2f}")
    rest = statistics.median(a - sum(found.values()) for a, found in zip(total.cpu, kinds, strict=True))
    print(f"{'doit, and forks':22} {'':>6} {rest:8.2f}")
    whole = statistics.median(total.cpu)
    spread = f"{min(total.cpu):.1f} to {max(total.cpu):.1f} in {options.rounds} rounds"
    print(f"\nall: {whole:.1f} CPU s ({spread}), {statistics.median(total.wall):.1f} s wall; goal: {GOAL} CPU s")
    exporters = sum(medians.get(kind, 0.0) for kind in EXPORTERS)
    print(f"of that the exporters: {exporters:.1f} CPU s ({exporters / whole:.0%}), their import and warm-up included")


if __name__ == "__main__":
    main()
