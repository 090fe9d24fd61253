"""What a build does after a fault, by opmatrix's runner and by plain doit: is the result right, and what ran again?

    ./run python benchmarks/faults.py [--only WORDS]

Both run the same three steps (a.txt -> a.g -> a.so, b.txt -> b.g), each in a process of its own. "needed" is the number
of steps that must run because of the fault. The program plants a fault, runs doit once, and judges only the files in
the folder:

right       every output equals that of a build from nothing
stale       doit succeeds, and an output does not match the sources; "for good", if it stays so
error       doit ends with an error; "for good", if the next run does as well
+ litter    outputs of a removed operator, or a process that still runs, remain for the user to remove

Plain doit has its own checker (MD5) and database. Options that a user can add to each task so that doit checks more,
such as config_changed for flags, are not added.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toy import HOUR, Build, Ours, Plain

SOURCE, MIDDLE, LAST, OTHER = "a.txt", "build/generated/a/a.g", "build/compile/a/a.so", "build/generated/b/b.g"
ALL = (MIDDLE, LAST, OTHER)


@dataclass(frozen=True, kw_only=True)
class Result:
    word: str
    ran: int
    needed: int

    @property
    def good(self) -> bool:
        return self.word == "right" and self.ran == self.needed


# The faults: each changes a build that is up to date, and returns the outputs that must be made again.


def edited_meanwhile(build: Build) -> tuple[str, ...]:
    build.write(SOURCE, "bye")
    build.disturb(MIDDLE, "edited")
    build.doit()
    return MIDDLE, LAST


def truncated(build: Build) -> tuple[str, ...]:
    build.write(LAST, "")
    return (LAST,)


def deleted(build: Build) -> tuple[str, ...]:
    (build.root / LAST).unlink()
    return (LAST,)


def edited_by_hand(build: Build) -> tuple[str, ...]:
    build.write(MIDDLE, "by hand")
    return (MIDDLE,)


def flag(build: Build) -> tuple[str, ...]:
    build.steps["compile:a"].append("-O3")
    return (LAST,)


def older(build: Build) -> tuple[str, ...]:
    os.utime(build.write(SOURCE, "bye"), (1, 1))
    return MIDDLE, LAST


def same_mark(build: Build) -> tuple[str, ...]:
    path = build.root / SOURCE
    before = path.stat()
    path.write_text(path.read_text().replace("hello", "hallo"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return MIDDLE, LAST


def touched(build: Build) -> tuple[str, ...]:
    os.utime(build.root / SOURCE)
    return ()


def comment(build: Build) -> tuple[str, ...]:
    build.write(SOURCE, "hello # two")
    return (MIDDLE,)


def there_and_back(build: Build) -> tuple[str, ...]:
    before = (build.root / SOURCE).read_text()
    for text in ("another branch", before):
        (build.root / SOURCE).unlink()
        build.write(SOURCE, text)
    return ()


def built_there_and_back(build: Build) -> tuple[str, ...]:
    before = (build.root / SOURCE).read_text()
    build.write(SOURCE, "another branch")
    build.doit()
    build.write(SOURCE, before)
    return MIDDLE, LAST


def operator_removed(build: Build) -> tuple[str, ...]:
    (build.root / "ops/b/spec.py").unlink()
    (build.root / "ops/b").rmdir()
    del build.steps["codegen:b"]
    return ()


def stopped(number: signal.Signals) -> Callable[[Build], tuple[str, ...]]:
    def plant(build: Build) -> tuple[str, ...]:
        build.write(SOURCE, "bye")
        build.write("b.txt", "bye")
        build.disturb(LAST, "waits")
        build.stop(build.start(), number)
        return (LAST,)

    return plant


def killed_while_writing(build: Build) -> tuple[str, ...]:
    before = (build.root / SOURCE).read_text()
    build.write(SOURCE, "bye")
    build.disturb(MIDDLE, "half")
    build.stop(build.start(), signal.SIGKILL)
    build.write(SOURCE, before)
    return (MIDDLE,)


def two_at_once(build: Build) -> tuple[str, ...]:
    """Count what both runs execute: each step must run only once."""
    build.write(SOURCE, "bye")
    build.disturb(MIDDLE, "waits")
    first = build.start()
    build.doit()
    build.write("go", "")
    first.communicate(timeout=HOUR)
    return MIDDLE, LAST


def state_damaged(build: Build) -> tuple[str, ...]:
    for path in build.root.glob(build.state):
        path.write_bytes(b"no database" * 1000)
    return ALL


def clock_set_back(build: Build) -> tuple[str, ...]:
    os.utime(build.write(SOURCE, "from the future"), (4e9, 4e9))
    build.doit()
    build.write(SOURCE, "bye")
    build.ran()
    return MIDDLE, LAST


FAULTS: dict[str, Callable[[Build], tuple[str, ...]]] = {
    "input edited while its step runs": edited_meanwhile,
    "output truncated": truncated,
    "output deleted": deleted,
    "output edited by hand": edited_by_hand,
    "flag changed": flag,
    "older time stamp, other content": older,
    "same time stamp and size, other content": same_mark,
    "touch": touched,
    "comment edited, the next output is equal": comment,
    "branch switched and back": there_and_back,
    "branch switched, built, and back": built_there_and_back,
    "operator removed": operator_removed,
    "Ctrl-C in the middle of a run": stopped(signal.SIGINT),
    "SIGTERM in the middle of a run": stopped(signal.SIGTERM),
    "SIGKILL in the middle of a run": stopped(signal.SIGKILL),
    "killed while it writes, then reverted": killed_while_writing,
    "two runs at once": two_at_once,
    "state database damaged": state_damaged,
    "file from the future, clock set back": clock_set_back,
}
# Steps that run while the fault is planted count as the fault's, except in these: here an extra step is the fault.
WITH_PLANTING = (two_at_once,)


def up_to_date(kind: type[Build], root: Path) -> Build:
    """Make a build that is up to date."""
    build = kind(root)
    build.write(SOURCE, "hello # one")
    build.write("b.txt", "other")
    for name in "ab":
        build.write(f"ops/{name}/spec.py", "")
    build.steps["codegen:a"] = [SOURCE, MIDDLE]
    build.steps["codegen:b"] = ["b.txt", OTHER]
    build.steps["compile:a"] = [MIDDLE, LAST]
    done = build.doit()
    if sorted(build.ran()) != sorted(ALL) or build.found() != build.expected():
        sys.exit(f"{build.name} does not build:\n{done.stdout}{done.stderr}")
    build.doit()  # all file hashes are trusted by now
    return build


def judge(build: Build, plant: Callable[[Build], tuple[str, ...]]) -> Result:
    needed = plant(build)
    if plant not in WITH_PLANTING:
        build.ran()
    done = build.doit()
    ran = build.ran()
    word = describe(build, done.returncode)
    if not word.startswith("right"):
        again = describe(build, build.doit().returncode)
        word += ", for good" if again == word else ""
    return Result(word=word, ran=len(ran), needed=len(needed))


def describe(build: Build, status: int) -> str:
    expected, found = build.expected(), build.found()
    wrong = any(found.get(path) != text for path, text in expected.items())
    litter = bool(found.keys() - expected.keys()) or build.killed > 0
    return ("error" if status else "stale" if wrong else "right") + " + litter" * litter


def row(fault: str, folder: Path) -> tuple[Result, Result]:
    results = []
    for kind in (Ours, Plain):
        root = folder / fault.replace(" ", "-") / kind.__name__
        root.mkdir(parents=True)
        results.append(judge(up_to_date(kind, root), FAULTS[fault]))
    return results[0], results[1]


def summary(name: str, results: list[Result]) -> str:
    right = sum(r.word == "right" for r in results)
    wasted = sum(max(0, r.ran - r.needed) for r in results)
    return f"{name}: {right} of {len(results)} right, {wasted} steps run in vain"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="faults with one of these words")
    chosen = [fault for fault in FAULTS if any(word in fault for word in parser.parse_args().only)]
    print(f"{'fault':41} needed | {Ours.name:18} ran | {Plain.name:26} ran")
    ours, plain = [], []
    with tempfile.TemporaryDirectory(prefix="opmatrix-faults-") as folder:
        for fault in chosen:
            a, b = row(fault, Path(folder).resolve())
            print(f"{fault:41} {a.needed:6} | {a.word:18} {a.ran:3} | {b.word:26} {b.ran:3}", flush=True)
            ours.append(a)
            plain.append(b)
    print(f"\n{summary(Ours.name, ours)}\n{summary(Plain.name, plain)}")
    return 0 if all(result.good for result in ours) else 1


if __name__ == "__main__":
    sys.exit(main())
