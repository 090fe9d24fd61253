"""The tasks of steps, the order in which N cores run them, and what is removed before one runs."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from doit.task import Task

from opmatrix.basics.files import digests_by_path
from opmatrix.engine.database import Journal
from opmatrix.engine.step_runner import Cores
from opmatrix.engine.tasks import GROUPS, REPORT, StepTask, doit_tasks, estimated, ranks
from opmatrix.engine.up_to_date import State
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step
from tests.incremental.conftest import wait_for


def test_steps_become_tasks_in_groups() -> None:
    steps = [
        Step(group="report", name="", command=("report",)),
        Step(group="compile", name="b", command=("compile", "b"), reads=("b.h",), writes=("b.so",)),
        Step(group="compile", name="a", command=("compile", "a"), after=("codegen",), config="flags"),
    ]
    tasks = {task.name: task for task in doit_tasks(steps)}
    assert list(tasks) == ["codegen", "compile", "compile:b", "compile:a", *list(GROUPS)[4:]], (
        "without a step of it there is no group of environments"
    )
    assert tasks["compile"].task_dep == ["compile:b", "compile:a"] and tasks["compile"].has_subtask
    assert (tasks["compile:b"].file_dep, tasks["compile:b"].targets) == ({"b.h"}, ["b.so"])
    assert (tasks["compile:a"].task_dep, tasks["compile:a"].meta) == (["codegen"], {"config": "flags"})
    assert all(tasks[group].doc for group in GROUPS if group in tasks)


def order(durations: dict[str, float], **dependencies: str) -> list[str]:
    """Return the order of tasks of a group each, given by name with the tasks before them."""
    made = [Task(f"{name}:x", None, task_dep=[f"{d}:x" for d in of.split()]) for name, of in dependencies.items()]
    found = ranks({task.name: task for task in made}, {f"{name}:x": seconds for name, seconds in durations.items()})
    return [name.partition(":")[0] for name in sorted(found, key=found.__getitem__)]


def test_the_longest_path_comes_first() -> None:
    """Equal ones keep the order of the plan."""
    durations = {"short": 3.0, "chain": 1.0, "middle": 3.0, "last": 1.0, "alone": 4.5}
    found = order(durations, short="", chain="", middle="chain", last="middle short", alone="")
    assert found == ["chain", "alone", "short", "middle", "last"]
    assert order(dict.fromkeys("cab", 1.0), c="", a="", b="") == ["c", "a", "b"]
    assert order({}, s0="", **{f"s{n}": f"s{n - 1}" for n in range(1, 3000)})[:2] == ["s0", "s1"], "a long chain"


def test_a_step_that_never_ran_takes_as_long_as_its_group() -> None:
    seconds = estimated({"export:a": 1.0, "export:b": 3.0}, usual={"compile": 5.0}, least=0.5)
    assert [seconds(step) for step in ("export:a", "export:c", "compile:a", "report")] == [1.0, 2.0, 5.0, 0.5]


def test_the_step_with_the_lowest_rank_gets_the_next_core() -> None:
    """And of equal ones the first that waited."""
    cores, ran = Cores(1), list[str]()
    cores.ranks = {"data:a": 3, "data:b": 1, "data:c": 2, "data:d": 1}

    def task(name: str) -> Any:
        return SimpleNamespace(name=name, step=SimpleNamespace(group="data"))

    def run(name: str) -> None:
        with cores.take(task(name)) as taken:
            ran.append(name)
            assert taken == 1

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in cores.ranks]
    with cores.take(task("data:first")):
        for count, thread in enumerate(threads, 1):
            thread.start()
            wait_for(lambda count=count: len(cores._waiting) == count)
    for thread in threads:
        thread.join()
    assert ran == ["data:b", "data:d", "data:c", "data:a"]


def begin(paths: Paths, step: Step, *, known: dict[str, str] | None = None) -> None:
    """Begin a step that last succeeded with the digests `known` of its outputs."""
    task, journal = StepTask(step), Journal(str(paths.state), None)
    journal.record(step.task, key="k", detail={"outputs": known or {}})
    state = State(journal, root=paths.root, tasks=[task])
    state.begin(task)
    assert journal.key(step.task) is None
    state.close()


def write(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("earlier")
    return str(path)


def test_no_record_of_a_step_exists_while_it_runs(tmp_path: Path) -> None:
    """Nor an output that it did not leave; its other outputs stay."""
    paths = Paths(tmp_path)
    library, foreign, manifest, verdict = (
        write(tmp_path / f"build/{name}") for name in ("a.so", "b.so", "a.json", "v")
    )
    writes = (library, foreign, manifest)
    step = Step(group="compile", name="a", operator="a", command=("x",), writes=writes, verdict=verdict)
    assert step.records == (verdict, manifest)
    known = digests_by_path([Path(library), Path(manifest)], tmp_path)
    begin(paths, step, known=known | {"build/b.so": ""})
    assert [Path(path).exists() for path in (*writes, verdict)] == [True, False, False, False]


def test_a_link_of_another_step_and_the_last_report_stay(tmp_path: Path) -> None:
    """Steps of one model in two versions of ONNX Runtime link the same data sets, and may run at the same time. The
    report is compared with the last one."""
    paths, link = Paths(tmp_path), tmp_path / "build/export/test_data_set_0"
    link.parent.mkdir(parents=True)
    link.symlink_to("../data/0")
    begin(paths, Step(group="verify", name="a", command=("x",), links=(str(link),)))
    report = write(paths.report_data)
    begin(paths, Step(group=REPORT, name="", command=("report",), writes=(report,)))
    assert link.is_symlink() and Path(report).exists()
