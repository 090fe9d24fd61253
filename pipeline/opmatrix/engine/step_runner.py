"""doit's runners: they run each step in a server, and give a failed step a message and a verdict."""

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

from opmatrix.engine.doit_tasks import REPORT, StepTask, is_reported, is_reported_on_demand
from opmatrix.engine.progress_reporter import StepReporter
from opmatrix.engine.step_failure import StepBlocked, StepFailed, failure_of, leave_verdict
from opmatrix.errors import OpmatrixError, disk_fault
from opmatrix.project.paths import Paths
from opmatrix.step_log import RAN

if TYPE_CHECKING:
    from opmatrix.engine.server_pool import Pool


# The environment variable with the number of processes that a step may run at a time, as ninja's -j.
JOBS = "OPMATRIX_JOBS"

# A compile step builds three independent objects. Other steps use one thread: OMP_NUM_THREADS is 1 in the servers, and
# the checks that run several threads are short.
_MOST_CORES = {"compile": 3}


def _prints_colours(task: StepTask) -> bool:
    """Return whether a step's output is shown in a terminal as it is: the report, and the errors of a compiler."""
    return task.name == REPORT or task.step.group == "compile"


class Cores:
    """The cores of a run, at most those of `doit -n`, shared by its steps."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._half = max(1, count // 2)  # the most for one step: often only one of its objects is out of date
        self._changed = threading.Condition()

    @contextmanager
    def take(self, task: StepTask) -> Iterator[int]:
        """Wait for a free core, then take as many of the free ones as the step can use; yield their number."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0)
            taken = min(self._free, self._half, _MOST_CORES.get(task.step.group, 1))
            self._free -= taken
        try:
            yield taken
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()


class StepRunner(Runner):
    """Runs one step at a time. `entry` and `lock` are those of Pool; `terminal` is for what prints colours."""

    def __init__(
        self, *arguments: Any, layout: Paths, entry: str, lock: int, terminal: Mapping[str, str], cores: int = 1
    ) -> None:
        super().__init__(*arguments)
        self._step_reporter = self.reporter if isinstance(self.reporter, StepReporter) else None  # None: one of doit's
        self._cores = Cores(cores)
        self._seconds: dict[str, float] = {}
        self._ran: set[str] = set()  # the operators of which a step ran
        self._layout, self._entry, self._lock, self._terminal = layout, entry, lock, terminal
        self._failures: dict[str, StepFailed | StepBlocked] = {}

    def select_task(self, node: ExecNode, tasks_dict: Mapping[str, Task]) -> bool:
        """Return whether to execute a task. If so, first remove what could be taken for its result."""
        try:
            return self._select(node, tasks_dict)
        except OSError as error:
            if not isinstance(node.task, StepTask):
                raise
            summary = disk_fault(error) or f"{error.filename}: {error.strerror}"
            self._handle_task_error(node, StepFailed(node.task.step, summary=summary, died=True))
            return False

    def _select(self, node: ExecNode, tasks_dict: Mapping[str, Task]) -> bool:
        if node.task.name == REPORT:
            node.bad_deps, node.ignored_deps = [], []  # a report covers the verdicts that exist
            self._list_verdicts(node.task, [*tasks_dict.values()])
        if node.bad_deps:
            self._handle_task_error(node, StepBlocked(node.task.name, self._cause(node)))
            return False
        chosen = bool(super().select_task(node, tasks_dict))
        if not isinstance(node.task, StepTask):
            return chosen
        if node.run_status == "up-to-date":
            self.dep_manager.remove_failure(node.task)
        if chosen:
            if self._step_reporter:
                self._step_reporter.step_begins()
            self.dep_manager.begin(node.task)
            if is_reported_on_demand(node.task.step):
                self.dep_manager.journal.forget(REPORT)  # so that the next run, which does not plan it, reports it
            self._pool.prepare()
        return chosen

    def _list_verdicts(self, task: Task, tasks: Sequence[Task]) -> None:
        """If the report will run, list the verdicts that it covers: of this run, and valid ones of earlier runs."""
        if not isinstance(task, StepTask) or not task.step.discovered_inputs:
            return
        if not self._seconds and not self._failures and self.dep_manager.get_status(task, {}).status == "up-to-date":
            return
        from opmatrix.engine.earlier_verdicts import valid_earlier_verdicts
        from opmatrix.files import write_text  # imported here, as in `_pool`
        from opmatrix.report.history import write_seconds

        earlier = valid_earlier_verdicts(self._layout, tasks, self.dep_manager)
        verdicts = {one.step.verdict for one in tasks if isinstance(one, StepTask) and is_reported(one.step)}
        written = (path for path in verdicts if path and Path(path).is_file())
        covered = {*task.step.reads, *map(str, earlier.verdicts), *written}
        write_seconds(self._layout, self.dep_manager.journal.durations())
        listed = sorted(covered)  # so that the order does not depend on the choice of cells
        write_text(Path(task.step.discovered_inputs), "".join(f"{path}\n" for path in listed))
        if (stale := earlier.stale) and self._step_reporter:
            names = ", ".join(stale[:3]) + (f" and {len(stale) - 3} more" if len(stale) > 3 else "")
            self._step_reporter.note(f"not in the report, for what earlier runs verified is out of date: {names}")

    @cached_property
    def _pool(self) -> Pool:
        from opmatrix.engine.server_pool import Pool  # imported here: a run with nothing to do does without

        started = self._step_reporter.add_server if self._step_reporter else None
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
                    environment={JOBS: str(taken), **self._environment(task)},
                )
        except (OpmatrixError, OSError) as error:
            return StepFailed(step, summary=disk_fault(error) or str(error), died=True)
        self._seconds[task.name] = ending.seconds
        if step.operator:
            self._ran.add(step.operator)
        if self._step_reporter:
            self._step_reporter.add_cpu(task, ending.cpu)
        if not ending.done:
            return failure_of(step, ending, log)
        if missing := [path for path in step.writes if not Path(path).is_file()]:
            return StepFailed(step, summary=f"ended well, but did not write {', '.join(missing)}", log=log)
        return None

    def _environment(self, task: StepTask) -> dict[str, str]:
        """Return the terminal, for a step whose output is shown there, and for the report which operators changed."""
        ran = {RAN: ",".join(sorted(self._ran))} if self._ran and task.name == REPORT else {}
        return {**self._terminal, **ran} if _prints_colours(task) else ran

    def process_task_result(self, node: ExecNode, base_fail: BaseFail | None) -> None:
        super().process_task_result(node, base_fail)
        if node.run_status != "successful" or not isinstance(node.task, StepTask):
            return
        self.dep_manager.journal.took(node.task.name, self._seconds[node.task.name])
        if node.task.name == REPORT:
            from opmatrix.report.report_json import is_wrong  # imported here, as above

            if is_wrong(self._layout.report_data):
                self.dep_manager.journal.forget(REPORT)  # so that the next run prints the wrong cells again
        if self._step_reporter and (changed := self.dep_manager.changed_meanwhile(node.task)):
            self._step_reporter.note(f"{node.task.name}: {changed}: it runs again next time")

    def _handle_task_error(self, node: ExecNode, base_fail: BaseFail) -> None:
        if isinstance(node.task, StepTask):
            if not isinstance(base_fail, StepFailed | StepBlocked):
                base_fail = StepFailed(node.task.step, summary=base_fail.message.rpartition("dependencies: ")[2])
            try:
                leave_verdict(node.task.step, base_fail)
            except OSError as error:
                if self._step_reporter:
                    self._step_reporter.note(f"{node.task.name}: {disk_fault(error) or error}")
        self._failures[node.task.name] = base_fail
        super()._handle_task_error(node, base_fail)

    def _cause(self, node: ExecNode) -> StepFailed:
        """Return the failure because of which a task cannot run."""
        failure = self._failures[node.bad_deps[0].task.name]
        return failure.cause if isinstance(failure, StepBlocked) else failure


class ThreadRunner(StepRunner, MThreadRunner):
    """Runs N steps at a time, for `doit -n N`. The threads only wait for the child processes of servers."""
