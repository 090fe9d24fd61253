"""doit's runners: they run each step in a server, and give a failed step a message and a verdict."""

from __future__ import annotations

import bisect
import heapq
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doit.control import ExecNode
from doit.exceptions import BaseFail
from doit.runner import JobHold, JobTaskPickle, MThreadRunner, Runner
from doit.task import Task

from opmatrix.basics.errors import OpmatrixError, disk_fault
from opmatrix.basics.step_log import RAN
from opmatrix.engine.progress_reporter import StepReporter
from opmatrix.engine.step_failure import NotShared, StepBlocked, StepFailed, failure_of, leave_verdict
from opmatrix.engine.tasks import (
    DECLARATION,
    DIST,
    ENVIRONMENT,
    REPORT,
    StepTask,
    is_reported,
    is_reported_on_demand,
    ranks,
)
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step

if TYPE_CHECKING:
    from opmatrix.engine.server_pool import Client, Pool
    from opmatrix.engine.shared_results import Origin, SharedResults, Workers


# The environment variable with the number of processes that a step may run at a time, as ninja's -j.
JOBS = "OPMATRIX_JOBS"

# A compile step builds three independent objects. Other steps use one thread: OMP_NUM_THREADS is 1 in the servers, and
# the checks that run several threads are short.
_MOST_CORES = {"compile": 3}

_MORE_THREADS = 4  # than twice the cores: of steps that wait for a core or for a server
_LOOKAHEAD = 256  # steps that are known to be ready and have no thread


class Cores:
    """The cores of a run, at most those of `doit -n`, shared by its steps. Of those that wait for a core, the one with
    the lowest rank gets it: that of a step in `ranks`."""

    def __init__(self, count: int) -> None:
        self.ranks: Mapping[str, int] = {}
        self._free = count
        self._half = max(1, count // 2)  # the most for one step: often only one of its objects is out of date
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, int]] = []
        self._tickets = itertools.count()

    @contextmanager
    def take(self, task: StepTask) -> Iterator[int]:
        """Wait for a free core, then take as many of the free ones as the step can use; yield their number."""
        with self._changed:
            ticket = (self.ranks.get(task.name, 0), next(self._tickets))
            heapq.heappush(self._waiting, ticket)
            self._changed.wait_for(lambda: self._free > 0 and self._waiting[0] == ticket)
            heapq.heappop(self._waiting)
            taken = min(self._free, self._half, _MOST_CORES.get(task.step.group, 1))
            self._free -= taken
            self._changed.notify_all()  # the next one may take what is left
        try:
            yield taken
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()


class StepRunner(Runner):
    """Runs one step at a time. `entry`, `lock` and `kept` are those of Pool; `terminal` is for what prints colours;
    `share` opens the shared cache, if the project has one; with `only_shared`, a step whose result it lacks does not
    run. `connect` connects to the workers that share it, of a run with ``--on``."""

    def __init__(
        self,
        *arguments: Any,
        paths: Paths,
        entry: str,
        lock: int,
        terminal: Mapping[str, str],
        cores: int = 1,
        share: Callable[[], SharedResults | None] = lambda: None,
        only_shared: bool = False,
        connect: Callable[[SharedResults], Workers] | None = None,
        kept: Callable[[str], Client] | None = None,
    ) -> None:
        super().__init__(*arguments)
        self._only_shared = only_shared
        self._share, self._connect = share, connect
        self._origins: dict[str, Origin] = {}  # of the steps whose result came from the shared cache
        # One of doit's reporters hears what it knows, and another one, which prints nothing, the rest.
        self._step_reporter = self.reporter if isinstance(self.reporter, StepReporter) else StepReporter(sys.stdout, {})
        self._cores = Cores(cores)
        self._seconds: dict[str, float] = {}
        self._ran: set[str] = set()  # the operators of which a step ran
        self._paths, self._entry, self._lock, self._terminal, self._kept = paths, entry, lock, terminal, kept
        self._failures: dict[str, StepFailed | StepBlocked] = {}
        self._opened = ExitStack()

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
            failure = self._failures[node.bad_deps[0].task.name]
            kind = NotShared if isinstance(failure, NotShared) else StepBlocked
            cause = failure.cause if isinstance(failure, StepBlocked) else failure
            self._handle_task_error(node, kind(node.task.name, cause))
            return False
        chosen = bool(super().select_task(node, tasks_dict))
        if not isinstance(node.task, StepTask):
            return chosen
        verdict = node.task.step.verdict
        if node.run_status == "up-to-date" and verdict and verdict not in node.task.step.writes:
            # Of a failure: it lacked an input that is there again, or was blocked, and did not run.
            Path(verdict).unlink(missing_ok=True)
        if chosen:
            self._step_reporter.step_begins()
            self.dep_manager.begin(node.task)
            if is_reported_on_demand(node.task.step):
                self.dep_manager.journal.forget(REPORT)  # so that the next run, which does not plan it, reports it
            if node.task.step.group == DIST:
                from opmatrix.report.history import write_origins  # imported here, as in `_pool`

                write_origins(self._paths, self.dep_manager.journal.origins())
            _ = self._shared  # settings that are not valid end the run before anything ran
            self._pool.prepare()
            _ = self._workers  # after the fork of `prepare`, because it has threads
        return chosen

    def _list_verdicts(self, task: Task, tasks: Sequence[Task]) -> None:
        """If the report will run, list the verdicts that it covers: of this run, and valid ones of earlier runs."""
        if not isinstance(task, StepTask) or not task.step.discovered_inputs:
            return
        if not self._seconds and not self._failures and self.dep_manager.get_status(task, {}).status == "up-to-date":
            return
        from opmatrix.basics.files import write_list  # imported here, as in `_pool`
        from opmatrix.engine.earlier_verdicts import valid_earlier_verdicts
        from opmatrix.report.history import write_origins, write_seconds

        earlier, stale = valid_earlier_verdicts(self._paths, tasks, self.dep_manager)
        verdicts = {one.step.verdict for one in tasks if isinstance(one, StepTask) and is_reported(one.step)}
        written = (path for path in verdicts if path and Path(path).is_file())
        covered = {*task.step.reads, *map(str, earlier), *written}
        write_seconds(self._paths, self.dep_manager.journal.durations())
        write_origins(self._paths, self.dep_manager.journal.origins())
        listed = sorted(covered)  # so that the order does not depend on the choice of cells
        write_list(Path(task.step.discovered_inputs), listed, root=self._paths.root)
        if stale:
            names = ", ".join(stale[:3]) + (f" and {len(stale) - 3} more" if len(stale) > 3 else "")
            self._step_reporter.note(f"not in the report, for what earlier runs verified is out of date: {names}")

    @cached_property
    def _pool(self) -> Pool:
        from opmatrix.engine.server_pool import Pool  # imported here: a run with nothing to do does without

        started = self._step_reporter.add_server
        pool = Pool(self._paths, entry=self._entry, lock=self._lock, started=started, kept=self._kept)
        self._opened.callback(pool.close)
        return pool

    @cached_property
    def _shared(self) -> SharedResults | None:
        shared = self._share()
        return self._opened.enter_context(closing(shared)) if shared else None

    @cached_property
    def _workers(self) -> Workers | None:
        connected = self._connect and self._shared and self._connect(self._shared)
        return self._opened.enter_context(closing(connected)) if connected else None

    def finish(self) -> int:
        self._opened.close()  # the workers, then the pool, then the shared cache
        return int(super().finish())

    def execute_task(self, task: Task) -> BaseFail | None:
        """Take the result of a task's step from the shared cache, or run it. Called by worker threads, too."""
        if not isinstance(task, StepTask):
            self.reporter.execute_task(task)
            return None
        try:
            if self._shared and not self.always_execute and (origin := self._shared.fetch(task)):
                self.reporter.execute_task(task)
                self._has_ended(task, origin.seconds, usage=None, origin=origin)
                return None
            if self._only_shared and not self._is_of_this_machine(task.step):
                return NotShared.of(task.step)
            if self._workers and (ended := self._workers.run(task, lambda: self.reporter.execute_task(task))):
                self._has_ended(task, ended.seconds, usage=(ended.cpu, ended.memory), origin=ended.origin)
                return ended.failure
            failure = self._compute(task)
        except (OpmatrixError, OSError) as error:
            return StepFailed(task.step, summary=disk_fault(error) or str(error), died=True)
        if self._shared and failure is None:
            failure = self._shared.store(task, seconds=self._seconds[task.name])
        return failure

    def _is_of_this_machine(self, step: Step) -> bool:
        """Return whether a step runs also where nothing is computed: it finds what this machine has, or shows what is
        known. The comparison of exports reads the manifests of all cells, which only this run has together."""
        if step.group == ENVIRONMENT:
            return self._paths.stamp(step.name).is_dir()
        return step.group in (DECLARATION, REPORT) or step.is_joint

    def _has_ended(
        self, task: StepTask, seconds: float, *, usage: tuple[float, int] | None, origin: Origin | None = None
    ) -> None:
        self._seconds[task.name] = seconds
        if origin:
            self._origins[task.name] = origin
        if task.step.operator:
            self._ran.add(task.step.operator)
        self._step_reporter.add_end(task, usage, origin)

    def _compute(self, task: StepTask) -> BaseFail | None:
        """Run a step in its server. Raises OpmatrixError, OSError."""
        step, log = task.step, self._paths.log(task.name)
        environment = {}
        if task.name == REPORT and self._ran:
            environment[RAN] = ",".join(sorted(self._ran))
        if task.name == REPORT or step.group == "compile":  # their output is shown in a terminal as it is
            environment |= self._terminal

        @contextmanager
        def on_core() -> Iterator[int]:
            with self._cores.take(task) as taken:
                self.reporter.execute_task(task)  # the step is shown as running from now on
                yield taken

        with self._pool.started(step.server_name, on_core) as taken:
            ending = self._pool.run(
                (*step.command, *step.asks),
                server=step.server_name,
                log=log,
                seconds=step.seconds,
                megabytes=step.megabytes,
                written=step.written,
                environment={JOBS: str(taken), **environment},
            )
        self._has_ended(task, ending.seconds, usage=(ending.cpu, ending.memory))
        if not ending.done:
            return failure_of(step, ending, log)
        if missing := [path for path in step.writes if not Path(path).is_file()]:
            return StepFailed(step, summary=f"ended well, but did not write {', '.join(missing)}", log=log)
        return None

    def process_task_result(self, node: ExecNode, base_fail: BaseFail | None) -> None:
        super().process_task_result(node, base_fail)
        if node.run_status != "successful" or not isinstance(node.task, StepTask):
            return
        self.dep_manager.journal.took(node.task.name, self._seconds[node.task.name])
        origin = self._origins.get(node.task.name)
        self.dep_manager.journal.came_from(node.task.name, (origin.url, origin.signer) if origin else None)
        if self._only_shared and node.task.step.group == ENVIRONMENT:
            self.dep_manager.journal.forget(node.task.name)  # only what is in it came, so that the next run makes it
        if node.task.name == REPORT:
            from opmatrix.report.report_json import is_wrong  # imported here, as above

            if is_wrong(self._paths.report_data):
                self.dep_manager.journal.forget(REPORT)  # so that the next run prints the wrong cells again
        if changed := self.dep_manager.changed_meanwhile(node.task):
            self._step_reporter.note(f"{node.task.name}: {changed}: it runs again next time")

    def _handle_task_error(self, node: ExecNode, base_fail: BaseFail) -> None:
        if isinstance(node.task, StepTask):
            if not isinstance(base_fail, StepFailed | StepBlocked):
                base_fail = StepFailed(node.task.step, summary=base_fail.message.rpartition("dependencies: ")[2])
            try:
                leave_verdict(node.task.step, base_fail)
            except OSError as error:
                self._step_reporter.note(f"{node.task.name}: {disk_fault(error) or error}")
        self._failures[node.task.name] = base_fail
        super()._handle_task_error(node, base_fail)


class ThreadRunner(StepRunner, MThreadRunner):
    """Runs N steps at a time, for `doit -n N`. The threads only wait, for the child processes of servers and for cores.

    There are more threads than cores, so that no core is free while a step is ready, whatever server starts. Of the
    ready steps, the one on the longest path to the end of the run is the first to get a thread, and a core.
    """

    num_process: int

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._at_once = self.num_process
        self.num_process = 2 * self._at_once + _MORE_THREADS
        self._ready: list[tuple[int, str]] = []
        self._with_thread = 0  # how many steps have one

    def get_next_job(self, completed: ExecNode | None) -> Any:
        """Return the next job for a thread: a step, JobHold if none is ready, or None at the end.

        doit's dispatcher gives ready tasks in the plan's order. While a core is free, the first one runs at once;
        otherwise there is time to look for further ones, and the best of them is next.
        """
        self._with_thread -= completed is not None
        node, has_ended = completed, False
        while not self._stop_running and (
            node or not self._ready or (self._with_thread >= self._at_once and len(self._ready) < _LOOKAHEAD)
        ):
            try:
                node = self.task_dispatcher.generator.send(node)
            except StopIteration:
                has_ended = True
                break
            if node == "hold on":
                break
            if self.select_task(node, self.tasks):
                if not self._cores.ranks:
                    self._cores.ranks = ranks(self.tasks, self.dep_manager.journal.durations())
                bisect.insort(self._ready, (self._cores.ranks[node.task.name], node.task.name))
                node = None
        if self._stop_running or (has_ended and not self._ready):
            return None
        if not self._ready:
            self.free_proc += 1
            return JobHold()
        self._with_thread += 1
        return JobTaskPickle(self.tasks[self._next()])

    def _next(self) -> str:
        """Remove and return the ready step to run next: the best one whose server is not just starting, if any."""
        for index, (_, name) in enumerate(self._ready):
            task = self.tasks[name]
            if not isinstance(task, StepTask) or not self._pool.is_starting(task.step.server_name):
                return self._ready.pop(index)[1]
        return self._ready.pop(0)[1]
