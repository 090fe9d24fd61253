"""The servers that a resident process, `doit watch`, keeps from run to run, and how its runs get them.

Each run is a fork of the resident process. It asks for a server by its name, and gets the socket: the resident process
starts, ends and replaces servers, a run only sends steps to them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opmatrix.basics.files import Mark, mark
from opmatrix.engine.server_pool import Client, ServerError, start_server
from opmatrix.project.paths import Paths
from opmatrix.records.step import read_server_name

_PATIENCE = 6.0  # seconds that servers have to end their steps
_MOST = 1 << 20  # bytes of a message of a run


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a run may need: servers, and folders and files outside ops/ and native/ that its steps read."""

    servers: tuple[str, ...]
    reads: tuple[str, ...]


class KeptServers:
    """The servers of the resident process. Their child processes call `entry`."""

    def __init__(self, paths: Paths, *, entry: str) -> None:
        self._paths, self._entry = paths, entry
        self._clients: dict[str, Client] = {}
        self._made: dict[str, Mark | None] = {}  # the environment of a server as it was when the server started

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
        known = self._clients.get(name)
        if known and (_ended(known.process) or self._made[name] != made):
            self._end([self._clients.pop(name)])
            known = None
        if not known:
            self._made[name] = made
            self._clients[name] = known = start_server(self._paths, name, entry=self._entry, variables={})
        return known

    def answer(self, run: socket.socket) -> Wishes | None:
        """Answer one message of a run, and return its wishes if it is these. Raises ConnectionError when the run has
        ended."""
        message = run.recv(_MOST)
        if not message:
            raise ConnectionResetError
        match json.loads(message):
            case str() as name:
                client = self.get(name)
                found = json.dumps({"process": client.process, "log": str(client.log)})
                socket.send_fds(run, [found.encode()], [client.requests.fileno()])
                return None
            case {"servers": servers, "reads": reads}:
                return Wishes(servers=tuple(servers), reads=tuple(reads))
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
            if not _said_hello(client.requests):  # it imports, and does not read its socket yet
                with suppress(ProcessLookupError):
                    os.kill(client.process, signal.SIGKILL)
            client.requests.close()
        deadline = time.monotonic() + _PATIENCE
        for client in clients:
            while not _ended(client.process):
                if time.monotonic() > deadline:
                    os.kill(client.process, signal.SIGKILL)
                time.sleep(0.002)


class Resident:
    """The resident process, for one of its runs. Any thread may call it."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests, self._guard = requests, threading.Lock()

    def tell(self, wishes: Wishes) -> None:
        """Say what the run may need, so that the resident process starts it meanwhile."""
        with suppress(OSError):  # it has ended, and so will this run
            self._requests.send(json.dumps(vars(wishes)).encode())

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


def _said_hello(requests: socket.socket) -> bool:
    try:
        return bool(requests.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False


def _ended(process: int) -> bool:
    try:
        return os.waitpid(process, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
