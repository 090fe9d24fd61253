"""The lock of a build folder: one run at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opmatrix.errors import REMEDY, OpmatrixError


class LockedError(OpmatrixError, exit_code=3):
    """Another run holds the lock, or the build folder is not writable."""


@contextmanager
def hold(path: Path) -> Iterator[int]:
    """Hold the lock and yield its descriptor; a process that inherits it holds the lock too. Raises LockedError.

    The kernel releases the lock when all holders have ended, also by a signal, so there are no stale locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LockedError(f"cannot write to '{path.parent}': {error.strerror}. {REMEDY}") from error
    try:
        _acquire(descriptor, path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, *, patience: float = 5) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode().strip()
        # The servers of a killed run hold the lock until their last child process ends, some milliseconds later.
        if _alive(holder) or time.monotonic() > deadline:
            raise LockedError(
                f"another run (process {holder or 'unknown'}) is at work in {path.parent}. "
                f"Wait for it{f', or stop it with: kill {holder}' if holder else ''}"
            )
        time.sleep(0.01)


def _alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True
