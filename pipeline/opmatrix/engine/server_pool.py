"""The clients of the warm servers, each started when a step first needs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from opmatrix.engine.fork_server import Server
from opmatrix.engine.server_main import ENVIRONMENT
from opmatrix.engine.step_process import Entry, find_entry, warm_up
from opmatrix.environments.reexec import python_path
from opmatrix.errors import OpmatrixError
from opmatrix.project.paths import Paths

# Steps without a server of their own are forked from doit itself: it has imported what they share.
LIGHT = "light"


class ServerError(OpmatrixError):
    """A server that did not start, or that ended while a step ran."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a step ended: exit code or minus the signal; `stopped` says at which limit, "time" or "memory"."""

    status: int
    seconds: float
    cpu: float
    stopped: str


@dataclass(frozen=True, kw_only=True)
class _Client:
    process: int
    requests: socket.socket
    log: Path


class Pool:
    """Runs steps in children of warm servers. Any thread may call `run`; `prepare` is for the main one.

    A server is named by the imports that it offers, ``export``, and, where it is one of another environment, by that as
    well: ``export@torch2.9``.

    `entry` is what a child calls with the arguments of a step. `lock` is a descriptor that the servers keep open, so
    that the build folder is held until the last of them has ended. `started` is told of each server that imported what
    steps need: its name, the seconds and the CPU seconds that it took.
    """

    def __init__(
        self, layout: Paths, *, entry: str, lock: int, started: Callable[[str, float, float], None] | None = None
    ) -> None:
        self._layout, self._entry, self._lock, self._started = layout, entry, lock, started
        self._clients: dict[str, _Client] = {}
        self._starting: dict[str, threading.Lock] = {}
        self._newborn: set[int] = set()

    def prepare(self) -> None:
        """Fork the light server, once, while there is no other thread whose locks the fork would copy."""
        if LIGHT not in self._clients:
            self._clients[LIGHT] = self._fork()

    def run(
        self,
        arguments: Sequence[str],
        *,
        server: str | None,
        log: Path,
        seconds: float,
        megabytes: float = 8000,
        environment: Mapping[str, str] | None = None,
    ) -> Ending:
        """Run one step, with `environment` added to its server's, and return how it ended. Raises ServerError."""
        log.parent.mkdir(parents=True, exist_ok=True)
        client = self._client(server or LIGHT)
        limits = {"seconds": seconds, "megabytes": megabytes}
        request = {"arguments": arguments, "log": str(log), "environment": environment or {}} | limits
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as answer:
            try:
                socket.send_fds(client.requests, [json.dumps(request).encode()], [writing])
            except OSError:
                pass  # it has ended: the answer below will be empty
            finally:
                os.close(writing)
            if ending := answer.read():
                return Ending(**json.loads(ending))
        self._clients.pop(server or LIGHT, None)
        raise ServerError(f"the {server or LIGHT} server ended while the step ran. Log: {client.log}. Run doit again")

    def close(self) -> None:
        """End every server with all it started."""
        for newborn in self._newborn:  # still importing, and so deaf
            os.kill(newborn, signal.SIGKILL)
        for client in self._clients.values():
            client.requests.close()
        deadline = time.monotonic() + 6
        for process in [*self._newborn, *(c.process for c in self._clients.values())]:
            while not _reaped(process):
                if time.monotonic() > deadline:
                    os.kill(process, signal.SIGKILL)
                time.sleep(0.002)
        self._clients.clear()

    def _client(self, server: str) -> _Client:
        with self._starting.setdefault(server, threading.Lock()):
            if server not in self._clients:
                self._clients[server] = self._start(server)
            return self._clients[server]

    def _start(self, server: str) -> _Client:
        log = self._layout.log(f"server:{server}")
        log.parent.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        began = time.monotonic()
        with theirs, log.open("wb") as output:
            imports, _, environment = server.partition("@")
            python, variables = self._python(environment)
            process = subprocess.Popen(
                [python, "-m", "opmatrix.engine.server_main", imports, self._entry, str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                cwd=self._layout.root,
                env={**os.environ, **ENVIRONMENT, **variables},
                pass_fds=(self._lock,),
                start_new_session=True,  # Ctrl-C in the terminal is for doit, which then ends the servers
            )
        process.returncode = 0  # `close` waits for it; without this subprocess warns that it is still running
        client = _Client(process=process.pid, requests=ours, log=log)
        self._newborn.add(process.pid)
        hello = ours.recv(1 << 16)
        self._newborn.remove(process.pid)
        told = json.loads(hello or b'{"error": "it ended before it could say why"}')
        if error := told["error"]:
            ours.close()
            raise ServerError(f"the {server} server did not start: {error}. Log: {log}")
        if self._started:
            self._started(server, time.monotonic() - began, told["cpu"])
        return client

    def _python(self, environment: str) -> tuple[str, dict[str, str]]:
        """Return the Python of an environment, and what it must be told: where this package is."""
        if not environment:
            return sys.executable, {}
        return str(self._layout.python(environment)), python_path(self._layout, environment)

    def _fork(self) -> _Client:
        log = self._layout.log(f"server:{LIGHT}")
        log.parent.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        entry = find_entry(self._entry)
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process == 0:
            ours.close()
            _serve_forked(theirs, entry, log)
        theirs.close()
        return _Client(process=process, requests=ours, log=log)


def _serve_forked(requests: socket.socket, entry: Entry, log: Path) -> NoReturn:
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for target in (1, 2):
            os.dup2(output, target)
        os.environ.update(ENVIRONMENT)
        warm_up(entry)
        Server(requests, entry).run()
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _reaped(process: int) -> bool:
    try:
        return os.waitpid(process, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
