"""Five jobs, each with a clone of its own, share one cache and one matrix: no cell is computed twice, none lacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from opmatrix.shared_cache.entry import decode
from tests.incremental.conftest import Project, wait_for

pytestmark = pytest.mark.incremental

OPERATORS = ("a", "b", "c", "d")
EXPORTS = [f"torch{torch}-{exporter}-opset{opset}"
           for torch in ("2.9", "2.13") for exporter in ("legacy", "dynamo") for opset in (18, 20)]  # fmt: skip
SHARDS = [f"{number}/5" for number in range(1, 6)]

WORK = """
def do_work(*names):
    time.sleep(0.05)
    Path(names[-1]).parent.mkdir(parents=True, exist_ok=True)
    Path(names[-1]).write_text("".join(Path(name).read_text() for name in names[:-1]))

def do_judge(*names):
    if "/verify/" in names[-1]:
        while Path("held").exists() and Path("judged").exists(): time.sleep(0.01)
        Path("judged").touch()
    do_work(*names)
    Path(names[-1]).write_text('{"outcome": "verified"}')

def do_show(*asked):
    part = Path("build/report/shard.txt").read_text().split() if "--shard" in asked else [n for n in asked if "/" in n]
    Path("build/report/report.json").write_text('{\\n"counts": {"mismatched": 0, "failed": 0}\\n}\\n')
    wrong = [name for name in part if '"verified"' not in Path(name).read_text()]
    print(f"{len(part)} shown, {len(wrong)} wrong")
    return 11 if wrong else 0
"""


class Job(Project):
    """A clone with four operators, 32 cells and a check of each operator's cases."""

    def __init__(self, root: Path, store: Path) -> None:
        root.mkdir(parents=True)
        super().__init__(root)
        self.environment: dict[str, Any] = {"OPMATRIX_CACHE": store.as_uri(), "OPMATRIX_CACHE_MODE": "write"}
        self.write("fake.py", self.read("fake.py") + WORK)
        for operator in OPERATORS:
            self.write(f"{operator}.txt", operator)
            self.add(f"codegen:{operator}", "work", f"{operator}.txt", f"build/{operator}.cc")
            self.add(f"compile:{operator}", "work", f"build/{operator}.cc", f"build/{operator}.so")
            self.add(f"data:{operator}", "work", f"{operator}.txt", f"build/{operator}.npz")
            self.add(f"cases:{operator}", "judge", f"build/{operator}.npz", f"build/cases/{operator}.json")
            for export in EXPORTS:
                model = f"build/{operator}-{export}.onnx"
                self.add(f"export:{operator}-custom@{export}", "work", f"build/{operator}.cc", model)
                sources = (f"build/{operator}.so", f"build/{operator}.npz", model)
                verdict = f"build/verify/{operator}-{export}.json"
                self.add(f"verify:{operator}-custom@{export}-ort1.31", "judge", *sources, verdict)
        self.report("show", discovered_inputs="build/report/verdicts.txt")
        self._write_steps()

    def add(self, task: str, command: str, *names: str) -> None:
        fields = {"verdict": names[-1]} if command == "judge" else {}
        step = self.step(task, command, names[0], names[-1], **fields)
        step.update(command=[command, *names], reads=[*names[:-1]])

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start doit in a session of its own."""
        return self.popen("-n", "2", *arguments, before=["setsid"], **self.environment)

    def steps_ran(self) -> list[str]:
        log = self.root / "ran"
        return log.read_text().splitlines() if log.exists() else []


def ended(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Wait for processes, which must succeed; return what each printed."""
    said = []
    for process in processes:
        out, _ = process.communicate()
        assert process.returncode == 0, out
        said.append(out)
    return said


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    return [Job(tmp_path / f"clone{number}", tmp_path / "store") for number in range(1, 6)]


def computed(jobs: Iterable[Job]) -> Counter[str]:
    """Return how often each step was computed in all jobs, but for their reports: the name is that of its output."""
    return Counter(line.split()[1] for job in jobs for line in job.steps_ran() if not line.startswith("show "))


def stored(store: Path) -> set[str]:
    """Return the steps of which a store has a result."""
    told = [json.loads(decode(path.read_bytes())[2]) for path in (store / "ac").glob("?" * 64)]
    return {json.loads(one["record"])["step"] for one in told if "record" in one}


def report(tmp_path: Path) -> tuple[Job, str]:
    """Return another clone after `doit --from-cache`, and what that printed."""
    job = Job(tmp_path / "report", tmp_path / "store")
    (said,) = ended([job.begin("--from-cache")])
    return job, said


def test_five_jobs_in_turn_compute_each_step_once(jobs: list[Job], tmp_path: Path) -> None:
    said = [out for job, shard in zip(jobs, SHARDS, strict=True) for out in ended([job.begin("--shard", shard)])]
    shown = [int(line.split()[0]) for out in said for line in out.splitlines() if line.endswith("shown, 0 wrong")]
    assert sum(shown) == 36 and min(shown) >= 4, shown
    steps = {path for step in jobs[0].steps[:-1] for path in step["writes"]}
    assert computed(jobs) == dict.fromkeys(steps, 1)
    job, out = report(tmp_path)
    assert "36 shown, 0 wrong" in out and "80 from the shared cache" in out
    assert [line.split()[0] for line in job.steps_ran()] == ["show"]


def test_of_five_jobs_at_once_a_killed_one_is_repeated(jobs: list[Job], tmp_path: Path) -> None:
    """What several shards need is computed by each that begins it before another has stored it; a cell by one."""
    jobs[1].write("held", "")  # it ends no cell after the first
    task_of = {step["writes"][0]: f"{step['group']}:{step['name']}" for step in jobs[1].steps}
    processes = [job.begin("--shard", shard) for job, shard in zip(jobs, SHARDS, strict=True)]
    cells = {task for task in task_of.values() if task.startswith("verify:")}
    wait_for(lambda: bool(cells & {task_of[path] for path in computed(jobs[1:2])} & stored(tmp_path / "store")))
    os.killpg(processes[1].pid, signal.SIGKILL)
    processes.pop(1).communicate()
    ended(processes)
    before, kept = computed(jobs), stored(tmp_path / "store")
    job = Job(tmp_path / "report before", tmp_path / "store")
    out, _ = job.begin("--from-cache").communicate()
    assert "36 shown" in out and "36 shown, 0 wrong" not in out
    wrong = [step["verdict"] for step in job.steps if "verdict" in step and "not run" in job.read(step["verdict"])]
    assert wrong and all("the shared cache has no result of" in job.read(verdict) for verdict in wrong)
    again = Job(tmp_path / "again", tmp_path / "store")
    ended([again.begin("--shard", SHARDS[1])])
    repeated = {task_of[path] for path in computed([again]) if before[path]}
    assert not repeated & kept, "only steps that ran when it was killed, and those that were being stored"
    others = before - computed([jobs[1]])
    assert {number for path, number in others.items() if task_of[path] in cells} == {1}
    _, out = report(tmp_path)
    assert "36 shown, 0 wrong" in out
    assert json.loads(again.read("build/report/report.json"))
