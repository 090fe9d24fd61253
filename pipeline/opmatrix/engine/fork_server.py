"""A warm server: a process that has imported what steps need, and forks one child per step.

It is single-threaded (a fork takes one thread along, and the locks of all), serves requests over a socket, and ends
with everything it started when the socket is closed, which the kernel does when the client ends in any way.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opmatrix.engine.step_process import Entry, adopt_orphans, run_step

_GRACE = 1.0  # seconds between SIGABRT, which shows the Python stack in the log, and SIGKILL
_LOOK = 0.1  # seconds between two looks at the memory of steps; a kernel that runs wild takes some 100 MB in it
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(kw_only=True)
class _Running:
    answer: int
    started: float
    limit: float
    memory: float  # limit, in bytes
    stopped: str = ""


class Server:
    """Each request is JSON (arguments, log, seconds, megabytes, environment) and a pipe for the answer."""

    def __init__(self, requests: socket.socket, entry: Entry) -> None:
        self._requests, self._entry = requests, entry
        self._running: dict[int, _Running] = {}
        adopt_orphans()  # what a step leaves behind becomes our child, however it detached itself
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)  # the client decides when we end

    def run(self) -> None:
        """Serve until the socket is closed."""
        while True:
            ready, _, _ = select.select([self._requests.fileno(), self._wake], [], [], self._patience())
            if self._wake in ready:
                os.read(self._wake, 4096)
            self._reap()
            self._stop_late()
            self._stop_large()
            if self._requests.fileno() in ready and not self._receive():
                return self._end()

    def _patience(self) -> float | None:
        if not self._running:
            return None
        return min(_LOOK, max(0, min(r.limit for r in self._running.values()) - time.monotonic()))

    def _receive(self) -> bool:
        try:
            message, (answer, *_), _, _ = socket.recv_fds(self._requests, 1 << 16, 1)
        except (ValueError, ConnectionError):  # no pipe came along: the socket was closed
            return False
        request = json.loads(message)
        started = time.monotonic()
        server = os.getpid()
        process = os.fork()
        if process == 0:
            run_step(self._entry, request, server)
        with suppress(OSError):  # the child does the same: whoever is first
            os.setpgid(process, process)
        self._running[process] = _Running(
            answer=answer,
            started=started,
            limit=started + request["seconds"],
            memory=request["megabytes"] * 1e6,
        )
        return True

    def _reap(self) -> None:
        while True:
            try:
                process, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            if step := self._running.pop(process, None):
                _kill_group(process)
                self._kill_left_behind()
                self._answer(step, status, usage)

    def _answer(self, step: _Running, status: int, usage: resource.struct_rusage) -> None:
        ending = {
            "status": os.waitstatus_to_exitcode(status),
            "seconds": time.monotonic() - step.started,
            "cpu": usage.ru_utime + usage.ru_stime,
            "stopped": step.stopped,
        }
        with suppress(BrokenPipeError):
            os.write(step.answer, json.dumps(ending).encode())
        os.close(step.answer)

    def _stop_late(self) -> None:
        now = time.monotonic()
        for process, step in self._running.items():
            if now < step.limit:
                continue
            if step.stopped:
                _kill_group(process)
            else:
                os.kill(process, signal.SIGABRT)
            step.stopped, step.limit = "time", now + _GRACE

    def _stop_large(self) -> None:
        # No RLIMIT: torch reserves far more than it uses, and a kernel whose malloc fails does not say why. At once,
        # for a stack in the log would take more memory.
        for process, step in self._running.items():
            if not step.stopped and memory(process) > step.memory:
                step.stopped = "memory"
                _kill_group(process)

    def _kill_left_behind(self) -> None:
        """Kill our children that are no step: what steps had started and no longer wait for."""
        try:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
            return
        for child in map(int, children):
            if child not in self._running:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def _end(self) -> None:
        for process in self._running:
            _kill_group(process)
        self._running.clear()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            self._kill_left_behind()
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.002)
            except ChildProcessError:
                return


def memory(process: int) -> int:
    """Return how many bytes a process and its descendants hold in memory, what they share counted once each."""
    try:
        found = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (OSError, IndexError):  # it has ended, or a kernel without CONFIG_PROC_CHILDREN
        return 0
    return found + sum(memory(int(child)) for child in children)


def _kill_group(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def other_threads() -> list[str]:
    """Return the names of this process's threads but the main one."""
    tasks = Path("/proc/self/task")
    return [(t / "comm").read_text().strip() for t in tasks.iterdir() if int(t.name) != os.getpid()]
