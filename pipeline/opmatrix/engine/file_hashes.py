"""Fingerprints of files: content decides; a file is read again only when it may have changed."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

# What tells that a file was written: mtime_ns, ctime_ns, size, inode. Nobody can set ctime, so an edit that keeps
# size and time stamp shows in it.
Mark = tuple[int, int, int, int]

_SECOND = 1_000_000_000


def mark(path: str) -> Mark | None:
    """Return the mark of a file, or None where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - Path.stat takes twice as long, and each doit command asks for thousands
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


class Fingerprints:
    """The sha256 of files, kept together with their marks. `known` is what an earlier run found."""

    def __init__(self, known: dict[str, tuple[Mark, str]]) -> None:
        self._known = known
        self.fresh: dict[str, tuple[Mark, str]] = {}

    def digest(self, path: str) -> str | None:
        """Return the fingerprint of a file, or None where there is none. Raises OSError for an unreadable one."""
        now = mark(path)
        if now is None:
            return None
        known = self._known.get(path)
        if known and known[0] == now:
            return known[1]
        looked = time.time_ns()
        with Path(path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if settled(now, looked):
            self._known[path] = self.fresh[path] = (now, digest)
        return digest


def settled(found: Mark, looked: int) -> bool:
    """Return whether a file whose mark was `found` at the time `looked` shows its next change in a new mark.

    Kernels stamp with the time of their last tick, 1 to 10 ms, and whole seconds come from a coarse file system: a file
    may change again within a tick (git calls it racy).
    """
    tick = 2 * _SECOND if found[1] % _SECOND == 0 else _SECOND // 20
    return looked - found[1] > tick
