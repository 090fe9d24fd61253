"""What runs in a dask worker: it hands each step to the server of its project, a process of its own in the worker's
folder, so that neither the files of a project nor its steps run in the worker itself.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from pathlib import Path
from typing import Any

from distributed import Status, Worker, WorkerPlugin, get_worker

from opmatrix.basics.errors import disk_fault
from opmatrix.project.cells import environment_names
from opmatrix.project.paths import Paths

MEMORY = "memory"
"""The resource that a step takes its limit of memory from, in MB."""
_LOOK = 0.2  # seconds between two looks whether the client still wants the result
_KEPT = 4  # projects for which a worker keeps servers and a build folder
_ENDS = 8.0  # seconds that the server of a project has to end its steps

_guard = threading.Lock()
_servers: dict[Path, _Server] = {}  # by the folder of the project; several workers may be in one process


class Offer(WorkerPlugin):
    """Gives each worker the resources that it was not started with: all memory of its machine, and every environment of
    the matrix unless ``--resources`` names some. `of_run`: the run has started the workers, and ends them."""

    name = "opmatrix"

    def __init__(self, *, of_run: bool) -> None:
        self._of_run = of_run

    async def setup(self, worker: Worker) -> None:
        if self._of_run:  # Ctrl-C in a terminal goes to all its processes, and a worker would print its stack
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        own = worker.state.total_resources
        found: dict[str, float] = {}
        if MEMORY not in own:
            found[MEMORY] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6
        if not {*own} & {*environment_names()}:
            found |= dict.fromkeys(environment_names(), worker.state.nthreads)
        if found:
            await worker.set_resources(**found)

    async def teardown(self, worker: Worker) -> None:
        """End the servers when the worker ends in order. When it is killed, they read the end of their input.

        Called too when another client gives the worker its plugin: the servers are kept for all.
        """
        if worker.status in (Status.running, Status.paused):
            return
        with _guard:
            own = [root for root in _servers if root.is_relative_to(worker.local_directory)]
            ended = [_servers.pop(root) for root in own]
        for server in ended:
            server.end()


def run(text: str) -> str:
    """Run the step of a request, JSON, and return the answer: see `opmatrix.addons.team.project_server`."""
    request, worker = json.loads(text), get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    answer: dict[str, Any] = {"again": True}
    try:
        while "again" in answer:
            answer = _server(Path(worker.local_directory), request["project"]).ask(request, wanted=wanted)
    except OSError as error:
        answer = {"refused": disk_fault(error) or str(error), "broken": True}
    return json.dumps({**answer, "worker": str(worker.name)})


def _server(folder: Path, project: dict[str, str]) -> _Server:
    """Return the server of a project, and start it unless it runs. Raises OSError."""
    root = folder / "opmatrix" / project["id"]
    with _guard:
        server = _servers.pop(root, None)
        if server is None or server.has_ended:
            if server:
                server.end()
            server = _Server(root, project["entry"], project["plan"])
        _servers[root] = server  # the last one is that of the newest use
        own = [other for other in _servers if other.parent == root.parent]
        idle = [other for other in own[:-_KEPT] if not _servers[other].is_busy]
        for other in idle:
            _servers.pop(other).end()
            shutil.rmtree(other, ignore_errors=True)
        return server


class _Server:
    """The process that has a project, and the requests that wait for its answers."""

    def __init__(self, root: Path, entry: str, plan: str) -> None:
        self._paths = Paths(root)
        self._paths.build.mkdir(parents=True, exist_ok=True)
        with self._paths.server_log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "opmatrix.addons.team", entry, plan],
                cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._guard = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._asked = 0
        self._ending = False  # whether it takes no more requests
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def has_ended(self) -> bool:
        return self._ending or self._process.poll() is not None

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def ask(self, request: dict[str, Any], *, wanted: Callable[[], bool]) -> dict[str, Any]:
        """Return the answer to a request. If the client no longer wants any, end the server, and with it the step."""
        coming: Future[dict[str, Any]] = Future()
        with self._guard:
            if self._ending:
                return {"again": True}
            self._asked += 1
            number = self._asked
            self._waiting[number] = coming
            try:
                assert self._process.stdin
                self._process.stdin.write(json.dumps({"id": number, **request}).encode() + b"\n")
                self._process.stdin.flush()
            except (OSError, ValueError):
                self._waiting.pop(number)
                return self._ended()
        while True:
            try:
                answer = coming.result(_LOOK)
            except NotYet:
                if wanted():
                    continue
                with self._guard:
                    self._waiting.pop(number, None)
                    self._ending = not self._waiting
                if self._ending:
                    self.end()
                return {"refused": "no client waits for it any more", "broken": False}
            if "again" in answer:  # it is outdated: what it still runs ends first
                self._ending = True
            return answer

    def end(self) -> None:
        """End the process, its servers and their steps."""
        with suppress(OSError, ValueError):
            assert self._process.stdin
            self._process.stdin.close()
        try:
            self._process.wait(_ENDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout
        with suppress(ValueError):  # a line of something else: the process is not to be trusted any more
            for line in self._process.stdout:
                answer = json.loads(line)
                with self._guard:
                    coming = self._waiting.pop(answer.pop("id"), None)
                if coming:
                    coming.set_result(answer)
        self._process.kill()
        self._process.wait()
        with self._guard:
            left = [*self._waiting.values()]
            self._waiting.clear()
        for coming in left:
            coming.set_result({"again": True} if self._ending else self._ended())

    def _ended(self) -> dict[str, Any]:
        said = ""
        with suppress(OSError):
            said = self._paths.server_log.read_text(errors="replace", encoding="utf-8").strip().rpartition("\n")[2]
        room = shutil.disk_usage(self._paths.root).free
        why = f": {said}" if said else f"; {room / 1e6:.0f} MB are free on its disk"
        return {"refused": f"the server of the project ended{why}", "broken": True}
