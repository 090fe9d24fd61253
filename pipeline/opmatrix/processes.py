"""Measure the memory of a process and its descendants, find their ids, and kill them together."""

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
    """Return the child processes of the first thread of a process."""
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:  # it has ended, or the Linux kernel has no CONFIG_PROC_CHILDREN
        return []


def kill_group(process: int) -> None:
    """Kill the process group that a process leads."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
