"""The workers of a run, as the run sees them: which steps it hands out, to whom, who ran or refused how many, and what
it does when one is lost."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster, Security
from distributed.scheduler import KilledWorker

from opmatrix.addons.team import sources, worker
from opmatrix.basics.errors import OpmatrixError, UsageError, many, one_line
from opmatrix.basics.files import write_text
from opmatrix.engine.server_pool import Ending
from opmatrix.engine.shared_results import Ended, SharedResults
from opmatrix.engine.step_failure import StepFailed, failure_of
from opmatrix.engine.tasks import StepTask
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step

_CONNECT = 60  # seconds that a scheduler may take to answer, also on a busy machine
# What dask's configuration has, and the variables that set it.
_TLS = {"tls_ca_file": "CA_FILE", "tls_client_cert": "CLIENT__CERT", "tls_client_key": "CLIENT__KEY"}


def start_workers(count: int, paths: Paths) -> LocalCluster:
    """Start workers on this machine, each in a folder of its own."""
    paths.workers.mkdir(parents=True, exist_ok=True)
    return LocalCluster(
        n_workers=count,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # any free port: another scheduler may have 8787
        worker_dashboard_address=None,
        local_directory=str(paths.workers),
        memory_limit=0,  # steps have limits of their own
        silence_logs=logging.CRITICAL,
    )


def connect(address: str) -> Client:
    """Connect to a scheduler. Raises UsageError."""
    security = Security()
    missing = [variable for field, variable in _TLS.items() if not _is_file(getattr(security, field))]
    if address.startswith("tls://") and missing:
        names = ", ".join(f"DASK_DISTRIBUTED__COMM__TLS__{variable}" for variable in missing)
        raise UsageError(f"--on {address}: TLS needs certificates. Set {names} to files that exist, or dask's own "
                         "configuration")  # fmt: skip
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        # dask itself asks again and again, for all of the time, also where nothing listens.
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
        return Client(address, security=security, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"--on {address}: no scheduler answers there: {one_line(error)}. Start one: dask scheduler, "
                         "and on each machine: dask worker") from error  # fmt: skip


def _is_file(path: str | None) -> bool:
    return path is not None and ("-----BEGIN" in path or Path(path).is_file())  # dask takes either


_ENOUGH = 3  # refusals after which a worker gets no more steps of a group, or none at all if it is broken


class Tally:
    """Counts, by workers. Any thread may call it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ran: Counter[str] = Counter()
        self._refused: Counter[tuple[str, str]] = Counter()  # by worker and group, "" for what breaks all
        self._reasons: dict[str, str] = {}  # by worker: that of the first refusal
        self._stayed: Counter[str] = Counter()  # by reason

    def ran(self, worker: str) -> None:
        with self._guard:
            self._ran[worker] += 1

    def refused(self, worker: str, group: str, reason: str) -> None:
        """Count a refusal of a step of a group; of "", because the worker can run none."""
        with self._guard:
            self._refused[worker, group] += 1
            self._reasons.setdefault(worker, reason)

    def stayed(self, reason: str) -> None:
        """Count a step that no worker could run."""
        with self._guard:
            self._stayed[reason] += 1

    def is_out(self, worker: str, group: str) -> bool:
        """Return whether a worker has refused enough to be asked no more for steps of a group."""
        with self._guard:
            return any(self._refused[worker, asked] >= _ENOUGH for asked in ("", group))

    def lines(self) -> Iterator[str]:
        """Yield the last lines of the run."""
        if self._ran:
            counts = ", ".join(f"{name}: {count}" for name, count in sorted(self._ran.items()))
            yield f"{many(self._ran.total(), 'step')} ran on {many(len(self._ran), 'worker')} ({counts})"
        for name, reason in sorted(self._reasons.items()):
            count = sum(number for (who, _), number in self._refused.items() if who == name)
            yield f"the worker {name} refused {many(count, 'step')}: {reason}"
        for reason, count in self._stayed.items():
            yield f"{many(count, 'step')} ran here: {reason}"


_LOOK = 1.0  # seconds between two looks whether a worker is left that can run a step
_INFORMED = 1.0  # seconds for which it is known which workers there are


class Remote:
    """The workers of a `scheduler`, or as many as `local` says, started here. Worker threads of the run call `run`.

    `plan` and `entry` name functions: what plans the project's steps, and what a step calls. `note` takes a line for
    the user.
    """

    def __init__(
        self,
        *,
        scheduler: str,
        local: int,
        paths: Paths,
        choice: Choice,
        shared: SharedResults,
        entry: str,
        plan: str,
        at_once: int,
        note: Callable[[str], None],
    ) -> None:
        self._paths, self._choice, self._shared, self._note = paths, choice, shared, note
        root = str(paths.root)
        name = hashlib.sha256(f"{socket.gethostname()} {root} {entry} {plan}".encode()).hexdigest()[:16]
        self._project = {"id": name, "entry": entry, "plan": plan}
        self._run = secrets.token_hex(8)
        self._slots = threading.Semaphore(at_once)
        self._guard = threading.Lock()
        self._tally = Tally()
        self._sent: str | None = None  # the digest of the sources
        self._lost = ""  # why no worker is asked any more
        self._closing = False
        self._informed = 0.0
        self._workers: Mapping[str, Mapping[str, Any]] = {}
        for logger in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
            logging.getLogger(logger).setLevel(logging.CRITICAL)  # the run says in its own lines what is lost
        self._cluster = start_workers(local, paths) if local else None
        self._url = self._cluster.scheduler_address if self._cluster else scheduler
        self._name = f"local:{local}" if local else self._url
        self._client = connect(self._url)
        try:
            self._client.register_plugin(worker.Offer(of_run=self._cluster is not None))
        except Exception as error:  # of many kinds: a worker without opmatrix, or one that is gone
            self.close()
            raise UsageError(f"--on {self._name}: a worker cannot run steps: {one_line(error)}. Is the same opmatrix "
                             "installed on each machine, also on that of the scheduler?") from error  # fmt: skip
        shared.begin_providing()

    def run(self, task: StepTask, begins: Callable[[], None]) -> Ended | None:
        """Run a step on a worker, and call `begins` before. None: no worker ran it, so it is to run here."""
        step = task.step
        if not self._shared.travels(step):
            return None
        try:
            request = self._request(task)
        except (OSError, OpmatrixError):  # such as a file that is gone: the step fails here, with its message
            return None
        refused_by: set[str] = set()
        with self._slots:
            if request and not self._lost:
                begins()
            while request and not self._lost and not self._closing and (able := self._able(step, refused_by)):
                answer = self._ask(step, request, able)
                if answer is None:
                    continue
                if "refused" not in answer:
                    return self._ended(task, answer)
                self._refuse(step, answer, refused_by)
        if self._closing:  # interrupted: it does not run on this machine either
            return Ended(seconds=0, cpu=0, failure=StepFailed(step, summary="the run was interrupted", died=True))
        return None

    def close(self) -> None:
        """End the connection, say who ran what, and end the workers that the run started."""
        self._closing = True
        for line in self._tally.lines():
            self._note(line)
        with suppress(Exception):  # it may be the connection that is lost
            self._client.close(timeout=2)
        if self._cluster:
            with suppress(Exception):
                self._cluster.close(timeout=5)

    def _request(self, task: StepTask) -> str | None:
        """Return what a worker is asked, or None if the shared cache cannot take what it needs."""
        needs = self._shared.provide(task)
        with self._guard:
            if self._sent is None:
                self._sent = self._shared.put_blob(sources.pack(sources.collect(self._paths, self._shared.sources())))
        if needs is None or self._sent is None:
            return None
        step, request = task.step, self._shared.described(task)
        environments = self._paths.environment("")
        mark = environments.stat() if environments.is_dir() else None
        return json.dumps(
            request
            | {
                "project": self._project,
                "run": self._run,
                "sources": self._sent,
                "choice": vars(self._choice),
                "cache": self._shared.address,
                "environments": [str(environments), mark.st_dev, mark.st_ino] if mark else None,
                "step": step.task,
                "needs": needs,
            }
        )

    def _able(self, step: Step, refused_by: set[str]) -> list[str]:
        """Return the addresses of the workers that could run a step."""
        with self._guard:
            if time.monotonic() > self._informed + _INFORMED:
                try:
                    self._workers = self._client.scheduler_info(n_workers=-1)["workers"]
                except Exception as error:  # of many kinds: whatever ends the connection
                    self._lose(error)
                    return []
                self._informed = time.monotonic()
            workers = self._workers
        asked = {a: w for a, w in workers.items() if str(w["name"]) not in refused_by}
        left = {a: w for a, w in asked.items() if not self._tally.is_out(str(w["name"]), step.group)}
        wanted = _resources(step)
        able = [a for a, w in left.items() if all(w["resources"].get(r, 0) >= n for r, n in wanted.items())]
        if not able and not refused_by:
            lacks = f"none offers {' and '.join(f'{name} {amount:g}' for name, amount in wanted.items())}"
            self._tally.stayed("no worker is there" if not workers else lacks if left else "all workers refuse")
        return able

    def _ask(self, step: Step, request: str, able: list[str]) -> dict[str, Any] | None:
        """Return the answer of a worker, or None if it was lost."""
        try:
            future = self._client.submit(
                worker.run,
                request,
                key=f"{step.task}-{secrets.token_hex(4)}",
                workers=able,
                resources=_resources(step),
                pure=False,
            )
        except Exception as error:  # of many kinds, as above
            self._lose(error)
            return None
        try:
            while True:
                with suppress(TimeoutError):
                    answer: dict[str, Any] = json.loads(future.result(timeout=_LOOK))
                    return answer
                if not self._is_left(able):
                    return None
        except KilledWorker:  # each worker that began it died: so does this process's server, in its own child
            self._tally.stayed(f"the workers that ran it died, such as {step.task}")
            return {"refused": "it died", "broken": False, "worker": "", "all": True}
        except CancelledError:  # by dask, as it lost the connection
            self._lose(f"the scheduler {self._url} is gone")
            return None
        except Exception as error:  # such as of a worker without opmatrix
            self._tally.stayed(f"workers cannot run steps: {one_line(error)}")
            return {"refused": "it cannot run steps", "broken": True, "worker": "", "all": True}
        finally:
            with suppress(Exception):
                future.cancel(force=True)

    def _is_left(self, able: list[str]) -> bool:
        with self._guard:
            self._informed = 0.0
        try:
            return bool({*able} & {*self._client.scheduler_info(n_workers=-1)["workers"]})
        except Exception as error:  # as above
            self._lose(error)
            return False

    def _refuse(self, step: Step, answer: Mapping[str, Any], refused_by: set[str]) -> None:
        if answer.get("all"):
            refused_by |= {str(found["name"]) for found in self._workers.values()}
            return
        refused_by.add(answer["worker"])
        group = "" if answer["broken"] else step.group
        self._tally.refused(answer["worker"], group, f"{step.task}: {answer['refused']}")

    def _ended(self, task: StepTask, answer: Mapping[str, Any]) -> Ended | None:
        """Take what a step wrote, or what is known of its failure."""
        step, name = task.step, answer["worker"]
        if "ending" not in answer:
            origin = self._shared.take_computed(task)
            if origin is None:
                self._refuse(step, {**answer, "refused": "its result did not come", "broken": False}, set())
                return None
            self._tally.ran(name)
            origin = replace(origin, url=f"{origin.url}, computed by the worker {name} of {self._name}")
            return Ended(seconds=answer["seconds"], cpu=answer["cpu"], memory=answer["memory"], origin=origin)
        ending = Ending(**answer["ending"])
        root, log = self._paths.root, self._paths.log(task.name)
        write_text(log, answer["log"])
        for path in step.records:
            if (text := answer["files"].get(path.removeprefix(f"{root}/"))) is not None:
                write_text(Path(path), text)
        self._tally.ran(name)
        failure = failure_of(step, ending, log)
        failure = replace(failure, notes=[*failure.notes, f"It ran on the worker {name}"])
        return Ended(seconds=ending.seconds, cpu=ending.cpu, memory=ending.memory, failure=failure)

    def _lose(self, why: object) -> None:
        if not self._lost and not self._closing:
            self._lost = one_line(why) or type(why).__name__
            self._note(f"the workers are left out from here on: {self._lost}")


def _resources(step: Step) -> dict[str, float]:
    """Return what a step takes of a worker while it runs."""
    return {worker.MEMORY: step.megabytes} | ({step.environment: 1} if step.environment else {})
