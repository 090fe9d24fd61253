"""Find the child processes of a process and their memory in Linux's /proc, and kill a process group."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory(process: int) -> int:
    """Return the resident memory of a process and its descendants in bytes. Shared pages count once per process."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has ended
        return 0
    return pages * _PAGE + sum(map(memory, children(process)))


def children(process: int) -> list[int]:
    """Return the child processes that the threads of a process started."""
    found: list[int] = []
    with suppress(OSError):  # the process has ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):  # the thread has ended, or the Linux kernel has no CONFIG_PROC_CHILDREN
                found += map(int, (thread / "children").read_text().split())
    return found


def signal_name(number: int) -> str:
    """Return ``SIGSEGV``, or ``signal 40`` for a signal without a name, such as a real-time one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def kill_group(process: int) -> None:
    """Kill the process group that a process leads."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
