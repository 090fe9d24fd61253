"""From a schema to a verified operator: `doit new` and `doit`, in seconds and CPU seconds.

    ./run python benchmarks/new.py [--rounds 3]

Each round adds one operator to a project in which another one is up to date, and builds with a cold start: servers are
processes of this run only. The run itself reports the cost of its steps and of its servers' starts, as events of
`doit -r jsonl`.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

from measuring import DOIT, HEAD, ROOT, Measured, arguments, by_kind, measure, nothing

GOAL = 10  # seconds from the command to a verified operator
SCHEMA = "my::scale_shift_{0}(Tensor x, Tensor scale, float shift=0.0) -> Tensor"


def project_in(folder: Path, *tasks: str) -> Path:
    """Make a project of one operator, built, with the default opsets of this checkout."""
    project = folder / "project"
    measure(1, nothing, *DOIT, "new", "--project", str(project), cwd=folder)
    shutil.copy(ROOT / "pyproject.toml", project)
    measure(1, nothing, *command_new("first"), cwd=project)
    measure(1, nothing, *DOIT, *tasks, cwd=project)
    return project


def command_new(name: str) -> tuple[str, ...]:
    return (*DOIT, "new", "--schema", SCHEMA.format(name), "--domain", f"my.{name}")


def total(parts: list[Measured]) -> Measured:
    """Return the sum of consecutive commands, round by round."""
    return Measured(
        cpu=[sum(p) for p in zip(*(m.cpu for m in parts), strict=True)],
        wall=[sum(p) for p in zip(*(m.wall for m in parts), strict=True)],
    )


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    tasks = ["compile"] if options.smallest else []
    with tempfile.TemporaryDirectory(prefix="opmatrix-benchmark-") as folder:
        project, kinds = project_in(Path(folder), *tasks), []
        events = project / "events"
        written, built = Measured(cpu=[], wall=[]), Measured(cpu=[], wall=[])
        for number in range(options.rounds):
            for into, command in (
                (written, command_new(f"round_{number}")),
                (built, (*DOIT, "-r", "jsonl", "-o", str(events), *tasks)),
            ):
                found = measure(1, nothing, *command, cwd=project)
                into.cpu.extend(found.cpu)
                into.wall.extend(found.wall)
            kinds.append(by_kind(events)[0])
    print(f"{'':32} {HEAD}")
    for name, measured in (("doit new", written), ("doit", built), ("both", both := total([written, built]))):
        print(f"{name:32} {measured}")
    print("\nCPU seconds in doit, medians:")
    medians = {k: statistics.median(kind.get(k, 0.0) for kind in kinds) for k in set().union(*kinds)}
    for kind, seconds in sorted(medians.items(), key=lambda item: -item[1]):
        print(f"  {kind:30} {seconds:8.2f}")
    print(f"\ngoal: {GOAL} s, median {statistics.median(both.wall):.1f} s of wall time")


if __name__ == "__main__":
    main()
