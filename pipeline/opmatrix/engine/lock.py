"""The lock of a build folder: one run at a time."""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from opmatrix.basics.errors import REMEDY, OpmatrixError

_BRIEFLY = 0.3  # seconds after which a run that waits for the lock prints for whom


class LockedError(OpmatrixError, exit_code=3):
    """Another run holds the lock, or the build folder is not writable."""


@contextmanager
def hold(path: Path, *, patience: float = 5, waits: Callable[[str], object] | None = None) -> Iterator[int]:
    """Hold the lock and yield its descriptor; a process that inherits it holds the lock too. Raises LockedError when
    another run holds it; with `waits`, print by it who does, and wait.

    The kernel releases the lock when all holders have ended, also by a signal, so there are no stale locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LockedError(f"cannot write to '{path.parent}': {error.strerror}. {REMEDY}") from error
    try:
        _acquire(descriptor, path, patience=patience, waits=waits)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, *, patience: float, waits: Callable[[str], object] | None) -> None:
    began, said = time.monotonic(), False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode().strip()
        waited = time.monotonic() - began
        # The servers of a killed run hold the lock until their last child process ends, some milliseconds later.
        if waits:
            if not said and waited > _BRIEFLY:
                waits(f"waiting for another run in {path.parent}: {shown_holders(_holders(path, holder))}")
                said = True
        elif Path(f"/proc/{holder or 'none'}").exists() or waited > patience:
            raise LockedError(_message(path, holder))
        time.sleep(0.01)


def _holders(path: Path, recorded: str) -> dict[int, str]:
    """Return the process that the file names, if it holds the lock, else all that do, by what the Linux kernel knows:
    that process may have ended."""
    holders = held_by(path)
    if recorded != str(os.getpid()):
        holders.pop(os.getpid(), None)
    return {int(recorded): holders[int(recorded)]} if recorded in map(str, holders) else holders


def _message(path: Path, recorded: str) -> str:
    holders = _holders(path, recorded)
    if not holders:
        return f"another run is at work in {path.parent}. Run again"
    if [*map(str, holders)] == [recorded]:
        return f"another run is at work in {path.parent}: {wait_or_stop(holders, path)}"
    return f"{left_over(recorded, path, holders)}.\n{remedy(holders, path)}"


def held_by(path: Path) -> dict[int, str]:
    """Return the processes that hold a lock, with their commands; nothing if it is free. 0: a process that is not to
    be seen, such as one of another user."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return {}
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if any(link.samefile(path) for link in (process / "fd").iterdir()):
                found[int(process.name)] = (process / "cmdline").read_text(encoding="utf-8").replace("\0", " ").strip()
    return found or {0: "a process of another user"}


def left_over(recorded: str, path: Path, holders: Mapping[int, str]) -> str:
    """Return which processes of a run that has ended still hold its lock, with a path that is short where it can be."""
    lock = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    who = "a process that it started still holds" if len(holders) == 1 else "processes that it started still hold"
    return f"run {recorded or 'unknown'} has ended, and {who} {lock}: {shown_holders(holders)}"


def remedy(holders: Mapping[int, str], path: Path) -> str:
    """Return what to do about processes that a run left behind."""
    ends, it = ("it ends", "it") if len(holders) == 1 else ("they end", "them")
    return (
        f"The lock frees itself when {ends}. Wait, or stop {it}: {kill_command(holders, path)}\n"
        "That is safe: a step that did not end runs again. Then repeat your command, which ran nothing."
    )


def wait_or_stop(holders: Mapping[int, str], path: Path) -> str:
    """Return the processes of one run, and what to do about them."""
    return f"{shown_holders(holders)}. Wait for it, or stop it with: {kill_command(holders, path)}"


def shown_holders(holders: Mapping[int, str]) -> str:
    """Return the processes with their commands, for a message."""
    longest = 60
    parts = [f"process {number} ({text if len(text) <= longest else text[:longest] + ' ...'})"
             for number, text in holders.items()]  # fmt: skip
    return ", ".join(parts)


def kill_command(holders: Mapping[int, str], path: Path) -> str:
    """Return the command that ends the processes."""
    return f"sudo fuser -k {shlex.quote(str(path))}" if 0 in holders else f"kill {' '.join(map(str, holders))}"
