"""Carry out steps: doit's runners, with warm servers, and a verdict and a message for every step that fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doit.control import ExecNode
from doit.exceptions import BaseFail
from doit.runner import MThreadRunner, Runner
from doit.task import Task

from opmatrix.engine.doit_tasks import REPORT, StepTask
from opmatrix.engine.progress_reporter import StepReporter
from opmatrix.engine.step_failure import StepBlocked, StepFailed, ended, leave_verdict
from opmatrix.errors import OpmatrixError
from opmatrix.project.paths import Paths

if TYPE_CHECKING:
    from opmatrix.engine.server_pool import Pool


# What a step finds in its environment: how many processes it may start at a time. ninja is told.
JOBS = "OPMATRIX_JOBS"

# A compile step has three objects that do not wait for each other. All others are one thread: OMP_NUM_THREADS is 1 in
# the servers, and the few sessions and calls with more threads, which are tests of that, are short.
_AT_MOST = {"compile": 3}


class Cores:
    """The cores of a run, shared by its steps: never more are used than `doit -n` says."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._half = max(1, count // 2)  # one step alone may not hold all: often but one of its objects is stale
        self._changed = threading.Condition()

    @contextmanager
    def take(self, task: StepTask) -> Iterator[int]:
        """Wait for a free core, and hold as many as the step can use of those that are free."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0)
            taken = min(self._free, self._half, _AT_MOST.get(task.step.group, 1))
            self._free -= taken
        try:
            yield taken
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()


class StepRunner(Runner):
    """One step at a time. `entry` and `lock` are the pool's; `terminal` is the environment of the report."""

    def __init__(
        self, *arguments: Any, layout: Paths, entry: str, lock: int, terminal: Mapping[str, str], cores: int = 1
    ) -> None:
        super().__init__(*arguments)
        self._cores = Cores(cores)
        self._seconds: dict[str, float] = {}
        self._layout, self._entry, self._lock, self._terminal = layout, entry, lock, terminal
        self._failures: dict[str, StepFailed | StepBlocked] = {}

    def select_task(self, node: ExecNode, tasks_dict: Mapping[str, Task]) -> bool:
        """Return whether a task is to be executed, and see to it that nothing old passes for its result."""
        if node.task.name == REPORT:
            node.bad_deps, node.ignored_deps = [], []  # a report is written of what there is
            self._look_around(node.task, [*tasks_dict.values()])
        if node.bad_deps:
            self._handle_task_error(node, StepBlocked(node.task.name, self._cause(node)))
            return False
        chosen = bool(super().select_task(node, tasks_dict))
        if chosen and isinstance(node.task, StepTask):
            if isinstance(self.reporter, StepReporter):
                self.reporter.foresee()
            self.dep_manager.begin(node.task)
            if node.task.step.verdict:
                Path(node.task.step.verdict).unlink(missing_ok=True)
            self._pool.prepare()
        return chosen

    def _look_around(self, task: Task, tasks: Sequence[Task]) -> None:
        """Write down which verdicts the report covers, where it is about to be made anew: those of this run, and those
        that stand beside them."""
        if not isinstance(task, StepTask) or not task.step.discovered_inputs:
            return
        if not self._seconds and self.dep_manager.get_status(task, {}).status == "up-to-date":
            return
        from opmatrix.engine.earlier_verdicts import valid_earlier_verdicts
        from opmatrix.files import write_text  # here, as below

        found = valid_earlier_verdicts(self._layout, tasks, self.dep_manager)
        covered = sorted({*task.step.reads, *map(str, found.verdicts)})  # in one order, whatever was asked for
        write_text(Path(task.step.discovered_inputs), "".join(f"{path}\n" for path in covered))
        if found.stale and isinstance(self.reporter, StepReporter):
            names = _some(found.stale)
            self.reporter.note(f"not in the report, for what earlier runs verified is out of date: {names}")

    @cached_property
    def _pool(self) -> Pool:
        from opmatrix.engine.server_pool import Pool  # here, because a run with nothing to do pays for every import

        started = self.reporter.add_server if isinstance(self.reporter, StepReporter) else None
        return Pool(self._layout, entry=self._entry, lock=self._lock, started=started)

    def finish(self) -> int:
        if "_pool" in vars(self):
            self._pool.close()
        return int(super().finish())

    def execute_task(self, task: Task) -> BaseFail | None:
        """Run the step of a task in its server. Called by worker threads, too."""
        self.reporter.execute_task(task)
        if not isinstance(task, StepTask):
            return None
        step, log = task.step, self._layout.log(task.name)
        try:
            with self._cores.take(task) as taken:
                ending = self._pool.run(
                    (*step.command, *step.asks),
                    server=step.server_name,
                    log=log,
                    seconds=step.seconds,
                    megabytes=step.megabytes,
                    environment={JOBS: str(taken), **(self._terminal if task.name == REPORT else {})},
                )
        except OpmatrixError as error:
            return StepFailed(step, summary=str(error), died=True)
        self._seconds[task.name] = ending.seconds
        if isinstance(self.reporter, StepReporter):
            self.reporter.add_cpu(task, ending.cpu)
        if ending.status != 0:
            return ended(step, ending, log)
        if missing := [path for path in step.writes if not Path(path).is_file()]:
            return StepFailed(step, summary=f"ended well, but did not write {', '.join(missing)}", log=log)
        return None

    def process_task_result(self, node: ExecNode, base_fail: BaseFail | None) -> None:
        super().process_task_result(node, base_fail)
        if node.run_status != "successful" or not isinstance(node.task, StepTask):
            return
        self.dep_manager.journal.took(node.task.name, self._seconds[node.task.name])
        if node.task.name == REPORT:
            from opmatrix.report.report_json import is_wrong  # here, as above

            if is_wrong(self._layout.report_data):
                self.dep_manager.journal.forget(REPORT)  # who asks for a wrong cell must see it, so it is made again
        if isinstance(self.reporter, StepReporter) and (changed := self.dep_manager.changed_meanwhile(node.task)):
            self.reporter.note(f"{node.task.name}: {changed}: it runs again next time")

    def _handle_task_error(self, node: ExecNode, base_fail: BaseFail) -> None:
        if isinstance(node.task, StepTask):
            if not isinstance(base_fail, StepFailed | StepBlocked):
                base_fail = StepFailed(node.task.step, summary=base_fail.message.rpartition("dependencies: ")[2])
            leave_verdict(node.task.step, base_fail)
        self._failures[node.task.name] = base_fail
        super()._handle_task_error(node, base_fail)

    def _cause(self, node: ExecNode) -> StepFailed:
        """Return the failure at the root of a task that cannot run."""
        failure = self._failures[node.bad_deps[0].task.name]
        return failure.cause if isinstance(failure, StepBlocked) else failure


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class ThreadRunner(StepRunner, MThreadRunner):
    """`doit -n N`: as many steps at a time. The threads only wait for the servers' children."""
