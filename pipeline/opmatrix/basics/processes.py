"""Find the child processes of a process and their memory in Linux's /proc; let a process end with its parent, kill a
process group, a session, or all that a process started."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_HEARD = (signal.SIGTERM, signal.SIGCHLD)  # by a supervisor


def memory(process: int) -> int:
    """Return the resident memory of a process and its descendants in bytes. Shared pages count once per process."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError):  # it has ended
        return 0
    return pages * _PAGE + sum(map(memory, children(process)))


def shared_memory_once(process: int) -> float:
    """Return what `memory` does, but a page that processes share counts once among them all: forks share nearly all.
    Takes a millisecond for each process."""
    found = 0
    with suppress(OSError):  # it has ended, or the Linux kernel is older than 4.14
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8")
        found = sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return found + sum(map(shared_memory_once, children(process)))


def descendants(process: int) -> int:
    """Return how many processes a process and its descendants have started that still run."""
    found = children(process)
    return len(found) + sum(map(descendants, found))


def written(process: int) -> int:
    """Return the bytes that a process and its descendants have written, to files and pipes, also through memory."""
    counts = [0]
    with suppress(OSError, ValueError):  # it has ended, or the Linux kernel does not count
        lines = Path(f"/proc/{process}/io").read_text(encoding="utf-8").splitlines()
        counts += [int(line.split()[1]) for line in lines if line.startswith(("wchar:", "write_bytes:"))]
    return max(counts) + sum(map(written, children(process)))


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds of all threads of a process and of its descendants that run."""
    try:
        # After the name in parentheses, from the state on: utime and stime are the 12th and the 13th field (proc(5)).
        ticks = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    except OSError:  # it has ended
        return 0.0
    return sum(map(int, ticks)) / _TICKS + sum(map(cpu_seconds, children(process)))


def children(process: int) -> list[int]:
    """Return the child processes that the threads of a process started."""
    processes: list[int] = []
    with suppress(OSError):  # the process has ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):  # the thread has ended, or the Linux kernel has no CONFIG_PROC_CHILDREN
                processes += map(int, (thread / "children").read_text(encoding="utf-8").split())
    return processes


def signal_name(number: int) -> str:
    """Return ``SIGSEGV``, or ``signal 40`` for a signal without a name, such as a real-time one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let Linux send this process a signal when the thread that started it ends; 0 undoes that."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def begin_child(parent: int) -> None:
    """Let this process, which was forked, end with its parent, and hear signals as any other, but for Ctrl-C in the
    terminal, which goes to the parent alone."""
    die_with_parent()
    if os.getppid() != parent:  # it ended before this process could be told
        os._exit(1)
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def adopt_orphans() -> None:
    """Become the parent of all orphaned descendants, even of daemons."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def fork_supervised() -> int:
    """Fork as os.fork does, with a supervisor in between: return 0 in the child, the supervisor's process here.

    The supervisor ends as the child does, and at SIGTERM. First it kills all that the child started, also in sessions
    of their own. Both end with the thread that called this.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (*_HEARD, signal.SIGINT, signal.SIGHUP))
    try:
        parent = os.getpid()
        if supervisor := os.fork():
            return supervisor
        os.setpgid(0, 0)  # Ctrl-C reaches only the parent
        die_with_parent(signal.SIGTERM)
        adopt_orphans()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if os.getppid() != parent:
            os._exit(1)
        if child := os.fork():
            _supervise(child)
        die_with_parent()
        return 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _supervise(child: int) -> NoReturn:
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))  # such as the pipe of the child, and the lock of the build folder
    ended = None
    while ended is None and signal.sigwait(_HEARD) != signal.SIGTERM:
        ended = _reap(child)
    while left := children(os.getpid()):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        _reap(child)
        time.sleep(0.001)
    code = os.waitstatus_to_exitcode(ended) if ended is not None else -signal.SIGTERM
    if code < 0:
        if code not in (-signal.SIGKILL, -signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code)


def _reap(child: int) -> int | None:
    """Wait for all processes that have ended, and return the status of the child if it is one of them."""
    status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            status = ended[1] if ended[0] == child else status
    return status


def kill_group(process: int) -> None:
    """Kill the process group that a process leads."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def kill_session(leader: int, *, seconds: float = 5) -> None:
    """Kill all processes of the session of `leader`, which may have ended, and wait until they have ended too.

    A process whose parent ends stays in its session, in whatever group it is: ninja gives each compiler one of its own.
    """
    deadline = time.monotonic() + seconds
    while (left := _session(leader)) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.005)


def _session(leader: int) -> list[int]:
    processes: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # the process has ended
                # After the name in parentheses: state, parent, group, session (proc(5)).
                state, _, _, session, *_ = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                if int(session) == leader and state not in "ZX":
                    processes.append(int(folder.name))
    return processes
