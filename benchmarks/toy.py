"""Two small builds of the same steps, one by opmatrix's runner and one by plain doit, to plant faults in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from measuring import DOIT, ROOT, environment

HOUR = 3600  # nothing waits as long, but on a busy machine all takes longer
# Each step writes its source in capitals, without comments. Some files next to it make it wait, hang or fail.
PROGRAM = """
import sys, time
from pathlib import Path

def main(arguments):
    source, target, *flags = arguments
    with open("ran", "a") as log:
        print(target, file=log)
    text = Path(source).read_text()
    disturbance = Path(target + ".disturbed")
    disturbed = disturbance.read_text() if disturbance.exists() else ""
    disturbance.unlink(missing_ok=True)
    made = text.upper().partition("#")[0] + " ".join(flags)
    if disturbed == "edited":
        Path(source).write_text("edited meanwhile")
    if disturbed == "half":
        Path(target).write_text(made[: len(made) // 2])
    if disturbed:
        Path("disturbed").touch()
    while disturbed in ("half", "waits") and not Path("go").exists():
        time.sleep(0.01)
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(made)
    return 0

if __name__ == "__main__":
    main(sys.argv[1:])
"""
OURS = """
import json
from pathlib import Path
from opmatrix.commands.run import Run
from opmatrix.engine.tasks import doit_tasks
from opmatrix.records.step import Step

class Toy(Run):
    entry = "toy_step:main"

def task_steps():
    root, steps = Path.cwd(), []
    for name, (source, target, *flags) in json.loads((root / "steps.json").read_text()).items():
        group, _, operator = name.partition(":")
        reads, writes = (str(root / source),), (str(root / target),)
        command = (source, target, *flags)
        steps.append(Step(group=group, name=operator, command=command, reads=reads, writes=writes, seconds=3600))
    return doit_tasks(steps)
"""
PLAIN = """
import json, sys
from pathlib import Path

def task_step():
    for name, command in json.loads(Path("steps.json").read_text()).items():
        actions = [[sys.executable, "toy_step.py", *command]]
        yield {"name": name, "actions": actions, "file_dep": [command[0]], "targets": [command[1]]}
"""


@dataclass
class Build:
    """A folder with a dodo.py. `steps` maps names to source, target and flags."""

    root: Path
    steps: dict[str, list[str]] = field(default_factory=dict)
    killed: int = 0  # processes that were left and had to be killed

    name: ClassVar[str]
    dodo: ClassVar[str]
    state: ClassVar[str]
    settings: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, text in {"dodo.py": self.dodo, "pyproject.toml": self.settings, "toy_step.py": PROGRAM}.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def disturb(self, target: str, how: str) -> None:
        """Disturb the next run of the step that writes `target`."""
        self.write(f"{target}.disturbed", how)

    def doit(self) -> subprocess.CompletedProcess[str]:
        self._write_steps()
        run = {"cwd": self.root, "env": self._environment(), "capture_output": True, "text": True, "timeout": HOUR}
        return subprocess.run(DOIT, **run)

    def start(self) -> subprocess.Popen[str]:
        """Start doit and return when a step is disturbed."""
        self._write_steps()
        (self.root / "disturbed").unlink(missing_ok=True)
        process = subprocess.Popen(
            DOIT, cwd=self.root, env=self._environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=hear_interrupts,
        )  # fmt: skip
        deadline = time.monotonic() + HOUR
        while not (self.root / "disturbed").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return process

    def stop(self, process: subprocess.Popen[str], number: signal.Signals) -> None:
        """Send a signal to doit, as Ctrl-C does to all processes in the foreground, and kill what still runs."""
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        process.communicate(timeout=HOUR)
        for left in self._left():
            self.killed += 1
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)

    def ran(self) -> list[str]:
        """Return the outputs of the steps that ran since the last call."""
        log = self.root / "ran"
        lines = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def expected(self) -> Mapping[str, str]:
        """Return every output of a build of the present sources from nothing."""
        made: dict[str, str] = {}
        for source, target, *flags in self.steps.values():
            text = made.get(source) or (self.root / source).read_text()
            made[target] = text.upper().partition("#")[0] + " ".join(flags)
        return made

    def found(self) -> Mapping[str, str]:
        folder = self.root / "build"
        return {str(p.relative_to(self.root)): p.read_text() for p in folder.rglob("*") if p.suffix in (".g", ".so")}

    def _write_steps(self) -> None:
        self.write("steps.json", json.dumps(self.steps))

    def _environment(self) -> Mapping[str, str]:
        return {**environment(), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

    def _left(self) -> list[int]:
        """Return the processes that go on after doit: a step that waits sleeps again and again. Others are ending."""
        began: dict[int, int] = {}
        while True:
            now = {process: sleeps(process) for process in self._processes()}
            began = now | began
            if all(count - began[process] >= 100 for process, count in now.items()):
                return [*now]
            time.sleep(0.01)

    def _processes(self) -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").resolve() == self.root and "\nState:\tZ" not in (process / "status").read_text():
                    found.append(int(process.name))
        return found


class Ours(Build):
    name, dodo, state = "opmatrix", OURS, "build/state.db*"
    settings = (
        '[tool.opmatrix]\nformat = 1\n\n[tool.doit]\nloader = "opmatrix"\n\n'
        '[tool.doit.plugins.command]\nrun = "dodo:Toy"\n'
    )


class Plain(Build):
    name, dodo, state = "plain doit", PLAIN, ".doit.db*"


def sleeps(process: int) -> int:
    """Return how often a process has waited; 0 for one that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                return int(line.split()[1])
    return 0


def hear_interrupts() -> None:
    """Undo the shell's settings for a background job, in which all processes ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
