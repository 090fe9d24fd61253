"""Start the servers, each when a step first needs it, and send steps to them.

A resident process, `doit watch`, keeps servers from run to run. Each run is a fork of it, asks it for a server by its
name, and gets the socket: the resident process starts, ends and replaces servers, a run only sends steps to them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from opmatrix.basics.errors import OpmatrixError
from opmatrix.basics.files import Mark, mark
from opmatrix.basics.processes import kill_session
from opmatrix.engine.fork_server import Entry, Server, find_function
from opmatrix.engine.server_main import ENVIRONMENT, import_for
from opmatrix.environments.reexec import python_path
from opmatrix.project import judging_code, work_folder
from opmatrix.project.paths import Paths
from opmatrix.project.work_folder import WRITTEN
from opmatrix.records.step import read_server_name

_T = TypeVar("_T")

_PATIENCE = 6.0  # seconds that servers have to end their steps
# The server of steps without a set of imports. First it is a fork of doit itself, which has imported what they need.
LIGHT = "light"


class ServerError(OpmatrixError):
    """A server did not start, or ended while a step ran."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a step ended.

    `done`: the step reported that its entry returned 0; nothing else is a success. `status`: the exit code or minus
    the signal; 0 without `done` is a step whose code ended its process. `stopped`: the limit that it exceeded, "time",
    "memory", "written" or "log", or "". `processes`: what it had started and not ended, when it was stopped for its
    memory or what it wrote. `memory`: the largest resident memory of a process of the step, in bytes. `last_cpu`:
    before it was stopped for its time, CPU seconds, and in how many seconds.
    """

    status: int
    seconds: float
    cpu: float
    stopped: str
    memory: int = 0
    processes: int = 0
    done: bool = False
    last_cpu: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Client:
    """A server, as its clients know it."""

    process: int
    requests: socket.socket
    log: Path


class Pool:
    """Runs steps in child processes of servers. Any thread may call `run`, only the main one `prepare`.

    A server is named by its imports and, if not the main one, its environment: ``export@torch2.9``. Child processes
    call `entry`. Steps keep the descriptor `lock` open, so that the build folder is locked until the last one ends.
    `started` takes the name of each new server, and the seconds and CPU seconds of its start. `variables` are those of
    the environment that all servers but the light one start with. `kept` returns a server by its name from a process
    that keeps servers for many runs; `close` does not end those.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        entry: str,
        lock: int,
        started: Callable[[str, float, float], None] | None = None,
        variables: Mapping[str, str] | None = None,
        kept: Callable[[str], Client] | None = None,
    ) -> None:
        self._paths, self._entry, self._lock, self._started, self._kept = paths, entry, lock, started, kept
        self._variables: Mapping[str, str] = variables or {}
        self._clients: dict[str, Client] = {}
        self._starting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._importing: set[int] = set()
        self._prepared = False

    def prepare(self) -> None:
        """Fork the light server, once, before other threads start: the fork would copy their locks, and the pipes of
        their steps, whose end they would never read. If it ends, `run` starts another program instead."""
        if not self._prepared:
            self._prepared = True
            work_folder.remove_left(self._paths)
            self._clients[LIGHT] = self._fork()

    @contextmanager
    def started(self, server: str | None, core: Callable[[], AbstractContextManager[_T]]) -> Iterator[_T]:
        """Start a server unless it runs; yield what `core` yields, a core for the block. The thread that starts the
        server has its core meanwhile, others wait for the server without one. Raises ServerError."""
        name = server or LIGHT
        with ExitStack() as held:
            taken: list[_T] = []
            self._client(name, begins=lambda: taken.append(held.enter_context(core())))
            yield taken[0] if taken else held.enter_context(core())

    def is_starting(self, server: str | None) -> bool:
        """Return whether a step of a server would wait until it has started."""
        name = server or LIGHT
        return name not in self._clients and self._starting[name].locked()

    def run(
        self,
        arguments: Sequence[str],
        *,
        server: str | None,
        log: Path,
        seconds: float,
        megabytes: float = 8000,
        written: float = WRITTEN,
        environment: Mapping[str, str] | None = None,
    ) -> Ending:
        """Run one step with `environment` added to that of its server, and wait. Raises ServerError, and OSError for a
        log that cannot be written."""
        log.parent.mkdir(parents=True, exist_ok=True)
        log.open("wb").close()
        name = server or LIGHT
        client = self._client(name)
        limits = {"seconds": seconds, "megabytes": megabytes, "written": written}
        request = {"arguments": arguments, "log": str(log), "environment": environment or {}} | limits
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as answer:
            try:
                socket.send_fds(client.requests, [json.dumps(request).encode()], [writing, self._lock])
            except OSError:
                pass  # the server has ended: the answer is empty
            finally:
                os.close(writing)
            if ending := answer.read():
                return Ending(**json.loads(ending))
        kill_session(client.process)  # ninja and compilers would write into the build of the next run
        if self._clients.get(name) is client:  # else another thread has started a new server
            del self._clients[name]
            client.requests.close()
        raise ServerError(f"the {name} server ended while the step ran. Log: {client.log}. Run doit again")

    def end_servers(self, environment: str = "") -> None:
        """End the servers of an environment, or of all but the main one. The next step of one starts it anew."""
        for name, client in [*self._clients.items()]:
            of = read_server_name(name)[1]
            if of == environment if environment else of:
                del self._clients[name]
                client.requests.close()

    def close(self) -> None:
        """End all servers and what they started, but those that another process keeps."""
        for process in self._importing:  # these do not read their socket yet
            os.kill(process, signal.SIGKILL)
        clients = dict(self._clients)  # a thread of an interrupted run may still start one
        for client in clients.values():
            client.requests.close()
        own = [client.process for name, client in clients.items() if name == LIGHT or not self._kept]
        _await_end([*self._importing, *own])
        self._clients.clear()

    def _client(self, name: str, begins: Callable[[], object] = lambda: None) -> Client:
        """Return a server, which is started after a call of `begins` if it does not run."""
        with self._starting[name]:
            if name not in self._clients:
                begins()
                self._clients[name] = self._start(name)
            return self._clients[name]

    def _start(self, server: str) -> Client:
        began = time.monotonic()
        if self._kept:
            client = self._kept(server)
        else:
            client = start_server(self._paths, server, entry=self._entry, variables=self._variables)
            self._importing.add(client.process)
        # The message stays, for other runs that get the same server.
        hello = client.requests.recv(1 << 16, socket.MSG_PEEK)
        self._importing.discard(client.process)
        answer = json.loads(hello or b'{"error": "it ended before it could say why"}')
        if error := answer["error"]:
            client.requests.close()
            raise ServerError(f"the {server} server did not start: {error}. Log: {client.log}")
        if self._started and not self._kept:
            self._started(server, time.monotonic() - began, answer["cpu"])
        return client

    def _fork(self) -> Client:
        log = self._paths.log(f"server:{LIGHT}")
        log.parent.mkdir(parents=True, exist_ok=True)
        client_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        entry: Entry = find_function(self._entry)
        with server_end, log.open("wb") as output:
            sys.stdout.flush()
            sys.stderr.flush()
            process = os.fork()
            if process == 0:
                client_end.close()
                _serve_forked(server_end, entry, output.fileno())
        return Client(process=process, requests=client_end, log=log)


def start_server(paths: Paths, server: str, *, entry: str, variables: Mapping[str, str]) -> Client:
    """Start a server, which then imports what its steps need. When it has, or cannot, it sends its first message."""
    log = paths.log(f"server:{server}")
    log.parent.mkdir(parents=True, exist_ok=True)
    client_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with server_end, log.open("wb") as output:
        imports, environment = read_server_name(server)
        python = str(paths.python(environment)) if environment else sys.executable
        more = {**variables, **(python_path(paths, environment) if environment else {})}
        process = subprocess.Popen(
            [python, "-m", "opmatrix.engine.server_main", imports, entry, str(os.getpid())],
            stdin=server_end.fileno(),
            stdout=output,
            stderr=output,
            cwd=paths.root,
            env={**os.environ, **ENVIRONMENT, **more},
            start_new_session=True,  # Ctrl-C in the terminal goes to doit only, which then ends the servers
        )
    process.returncode = 0  # without this, subprocess warns about a running process; who ends it waits for it
    return Client(process=process.pid, requests=client_end, log=log)


def _serve_forked(requests: socket.socket, entry: Entry, output: int) -> NoReturn:
    try:
        os.setsid()
        for target in (1, 2):
            os.dup2(output, target)
        os.environ.update(ENVIRONMENT)
        judging_code.record()  # once for all its steps
        Server(requests, entry, import_for).run()
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _ended(process: int) -> bool:
    try:
        return os.waitpid(process, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _await_end(processes: Iterable[int]) -> None:
    """Wait until servers have ended; kill those that take too long."""
    deadline = time.monotonic() + _PATIENCE
    for process in processes:
        while not _ended(process):
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
            time.sleep(0.002)


Wishes = tuple[Sequence[str], Sequence[str]]
"""What a run may need: servers, and folders and files outside ops/ and native/ that its steps read."""


class KeptServers:
    """The servers of the resident process. Their child processes call `entry`."""

    def __init__(self, paths: Paths, *, entry: str) -> None:
        self._paths, self._entry = paths, entry
        self._clients: dict[str, Client] = {}
        self._stamps: dict[str, Mark | None] = {}  # the environment of a server as it was when the server started

    def start(self, names: Iterable[str]) -> None:
        """Start servers ahead of need. One of another environment starts when a step first needs it: there may be
        seventeen, of 0.3 GB each."""
        for name in names:
            if not read_server_name(name)[1]:
                self.get(name)

    def get(self, name: str) -> Client:
        """Return a server, a new one if it has ended or if its environment was made anew since it started."""
        _, environment = read_server_name(name)
        made = mark(str(self._paths.stamp(environment))) if environment else None
        client = self._clients.get(name)
        if client and (_ended(client.process) or self._stamps[name] != made):
            self._end([self._clients.pop(name)])
            client = None
        if not client:
            self._stamps[name] = made
            self._clients[name] = client = start_server(self._paths, name, entry=self._entry, variables={})
        return client

    def answer(self, run: socket.socket) -> Wishes | None:
        """Answer one message of a run, and return its wishes if it is these. Raises ConnectionError when the run has
        ended."""
        message = run.recv(1 << 20)
        if not message:
            raise ConnectionResetError
        match json.loads(message):
            case str() as name:
                client = self.get(name)
                found = json.dumps({"process": client.process, "log": str(client.log)})
                socket.send_fds(run, [found.encode()], [client.requests.fileno()])
                return None
            case [servers, reads]:
                return servers, reads
        raise ValueError(f"found {message!r}")

    def leave(self) -> None:
        """Close the sockets in a fork of the resident process: a server ends when nobody has its socket."""
        for client in self._clients.values():
            client.requests.close()
        self._clients.clear()

    def close(self) -> None:
        """End all servers and what they started."""
        clients = [*self._clients.values()]
        self._clients.clear()
        self._end(clients)

    def _end(self, clients: Sequence[Client]) -> None:
        for client in clients:
            try:
                client.requests.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except OSError:  # it said no hello: it imports, and does not read its socket yet
                with suppress(ProcessLookupError):
                    os.kill(client.process, signal.SIGKILL)
            client.requests.close()
        _await_end(client.process for client in clients)


class Resident:
    """The resident process, for one of its runs. Any thread may call it."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests, self._guard = requests, threading.Lock()

    def tell(self, wishes: Wishes) -> None:
        """Say what the run may need, so that the resident process starts it meanwhile."""
        with suppress(OSError):  # it has ended, and so will this run
            self._requests.send(json.dumps(wishes).encode())

    def server(self, name: str) -> Client:
        """Return a server, which may still import. Raises ServerError."""
        with self._guard:
            try:
                self._requests.send(json.dumps(name).encode())
                message, (requests,), _, _ = socket.recv_fds(self._requests, 1 << 16, 1)
            except (OSError, ValueError) as error:
                raise ServerError(f"the {name} server: `doit watch` has ended") from error
        found = json.loads(message)
        return Client(process=found["process"], requests=socket.socket(fileno=requests), log=Path(found["log"]))
