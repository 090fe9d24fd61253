"""The fork server: a process that has imported what steps need, forks one process per step, and enforces limits.

It has a single thread, because a fork copies only one thread but the locks of all. It takes requests from a socket. It
ends, with all that it started, when the socket is closed, which the Linux kernel does when the client ends in any way.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opmatrix.engine.step_process import DONE, Entry, run_step, work_of
from opmatrix.processes import (
    adopt_orphans,
    children,
    cpu_seconds,
    descendants,
    kill_group,
    memory,
    shared_memory_once,
    written,
)
from opmatrix.project import work_folder
from opmatrix.step_log import MOST_BYTES, shorten

_LAST = 1.0  # seconds before the limit of a step, of which its message says whether it computed or waited
_GRACE = 1.0  # seconds between SIGABRT, which writes the Python stack to the log, and SIGKILL
# Seconds between two checks of the memory and the output of steps. A kernel can allocate or print 100 MB in this time.
_POLL = 0.1


@dataclass(kw_only=True)
class _Running:
    answer: int
    lock: int  # of the build folder, which a step holds as long as it runs, also after its client was killed
    done: int  # the reading end of the pipe to which the step writes DONE
    log: Path
    started: float
    limit: float
    memory: float  # limit, in bytes
    written: float  # limit, in bytes
    stopped: str = ""
    processes: int = 0  # that it had started and not ended, when it was stopped
    before: tuple[float, float] | None = None  # the time about `_LAST` seconds before the limit, and the CPU seconds
    last_cpu: tuple[float, float] | None = None  # CPU seconds since then, and in how many seconds


class Server:
    """Serves requests: JSON (arguments, log, seconds, megabytes, written, environment), with a pipe for the answer and
    the lock of the build folder. A step is killed when nobody can read its answer. `import_for` imports what steps
    with this first argument need, before the fork."""

    def __init__(self, requests: socket.socket, entry: Entry, import_for: Callable[[str], None]) -> None:
        self._requests, self._entry, self._import_for = requests, entry, import_for
        self._running: dict[int, _Running] = {}
        self._work: list[Path] = []  # folders of steps that have ended, until they are removed
        adopt_orphans()  # a process that a step leaves behind becomes a child of the server, even a daemon
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)  # only the client ends the server

    def run(self) -> None:
        """Serve until the socket is closed."""
        while True:
            timeout = None
            if self._running:
                timeout = min(_POLL, max(0, min(r.limit for r in self._running.values()) - time.monotonic()))
            ready, _, _ = select.select([self._requests.fileno(), self._wake], [], [], timeout)
            if self._wake in ready:
                os.read(self._wake, 4096)
            self._reap()
            self._stop_over_limit()
            if self._requests.fileno() in ready and not self._receive():
                return self._end()

    def _receive(self) -> bool:
        try:
            message, (answer, lock), _, _ = socket.recv_fds(self._requests, 1 << 16, 2)
        except (ValueError, ConnectionError):  # no pipe: the socket was closed
            return False
        request = json.loads(message)
        self._import_for(next(iter(request["arguments"]), ""))
        started, server = time.monotonic(), os.getpid()
        done, say_done = os.pipe()
        os.set_blocking(done, False)  # a process that the step left behind may keep the other end open
        process = os.fork()
        if process == 0:
            run_step(self._entry, request, server, say_done)
        os.close(say_done)
        with suppress(OSError):  # the child process does the same, in either order
            os.setpgid(process, process)
        self._running[process] = _Running(
            answer=answer,
            lock=lock,
            done=done,
            log=Path(request["log"]),
            started=started,
            limit=started + request["seconds"],
            memory=request["megabytes"] * 1e6,
            written=request["written"] * 1e6,
        )
        return True

    def _reap(self) -> None:
        while True:
            try:
                process, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                process = 0
            if process == 0:
                return self._remove_work()
            if step := self._running.pop(process, None):
                kill_group(process)
                self._kill_left_behind()
                self._remove_work(process)
                with suppress(OSError):
                    shorten(step.log)
                self._answer(step, status, usage)

    def _remove_work(self, *ended: int) -> None:
        """Remove the working folders of these steps too, now or when what they started writes no more."""
        self._work += map(work_of, ended)
        for folder in self._work:
            work_folder.remove(folder)
        self._work = [folder for folder in self._work if folder.exists()]

    def _answer(self, step: _Running, status: int, usage: resource.struct_rusage) -> None:
        said = b""
        with suppress(BlockingIOError):
            said = os.read(step.done, len(DONE))
        os.close(step.done)
        os.close(step.lock)
        ending = {
            "status": os.waitstatus_to_exitcode(status),
            "done": status == 0 and said == DONE,
            "seconds": time.monotonic() - step.started,
            "cpu": usage.ru_utime + usage.ru_stime,
            "memory": usage.ru_maxrss * 1024,
            "stopped": step.stopped,
            "processes": step.processes,
        }
        if step.last_cpu:
            ending["last_cpu"] = step.last_cpu
        with suppress(BrokenPipeError):
            os.write(step.answer, json.dumps(ending).encode())
        os.close(step.answer)

    def _stop_over_limit(self) -> None:
        now = time.monotonic()
        for process, step in self._running.items():
            if now >= step.limit:
                if step.stopped:
                    kill_group(process)
                else:
                    if step.before:
                        began, cpu = step.before
                        step.last_cpu = cpu_seconds(process) - cpu, now - began
                    os.kill(process, signal.SIGABRT)
                step.stopped, step.limit = "time", now + _GRACE
            elif not step.before and now >= step.limit - _LAST and not step.stopped:
                step.before = now, cpu_seconds(process)
            # No RLIMIT: torch reserves far more than it uses, and a kernel whose malloc fails does not print why. No
            # SIGABRT: to write a stack to the log takes more memory.
            elif not step.stopped and memory(process) > step.memory and shared_memory_once(process) > step.memory:
                step.stopped, step.processes = "memory", descendants(process)
                kill_group(process)
            elif not step.stopped and written(process) > step.written:
                step.stopped, step.processes = "written", descendants(process)
                kill_group(process)
            elif not step.stopped and _printed(process, step.log) > MOST_BYTES:
                step.stopped = "log"
                kill_group(process)
            elif _unread(step.answer):  # the run that asked has ended; the server of `doit watch` outlives it
                kill_group(process)

    def _kill_left_behind(self) -> None:
        """Kill child processes that are no steps: those that steps started and no longer wait for."""
        for child in children(os.getpid()):
            if child not in self._running:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def _end(self) -> None:
        for process in (ended := [*self._running]):
            kill_group(process)
        self._running.clear()
        deadline = time.monotonic() + 5
        with suppress(ChildProcessError):
            while time.monotonic() < deadline:
                self._kill_left_behind()
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.002)
        self._remove_work(*ended)


def _unread(pipe: int) -> bool:
    """Return whether no process has the reading end of a pipe any more."""
    poll = select.poll()
    poll.register(pipe, 0)  # which asks for errors alone
    return bool(poll.poll(0))


def _printed(process: int, log: Path) -> int:
    """Return the size in bytes of the log of a step, or, if larger, of the file that has its output for a while."""
    sizes = [0]
    for path in (log, Path(f"/proc/{process}/fd/1")):  # `step_log.capture_stdout` changes the latter
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return max(sizes)
