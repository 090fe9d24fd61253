"""The sha256 of files. A file is read again only when its time stamps, size or inode have changed."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from pathlib import Path

# mtime_ns, ctime_ns, size, inode: they differ after each write. A program cannot set ctime, so an edit that keeps size
# and mtime shows too.
Mark = tuple[int, int, int, int]

_SECOND = 1_000_000_000
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def mark(path: str) -> Mark | None:
    """Return the mark of a file, or None if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - Path.stat takes twice as long, and each doit command calls this for thousands of files
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None
    except ValueError:  # a null byte: a power failure may fill a list of inputs with them
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


class Fingerprints:
    """The sha256 and the marks of files: `known` those of earlier runs, `fresh` those that were computed now."""

    def __init__(self, known: dict[str, tuple[Mark, str]]) -> None:
        self._known = known
        self.fresh: dict[str, tuple[Mark, str]] = {}

    def digest(self, path: str) -> str | None:
        """Return the sha256 of a file, or None if there is no file. Raises OSError for an unreadable one."""
        now = mark(path)
        if now is None:
            return None
        known = self._known.get(path)
        if known and known[0] == now:
            return known[1]
        read_at = time.time_ns()
        with Path(path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if settled(now, read_at):
            self._known[path] = self.fresh[path] = (now, digest)
        return digest


def settled(file_mark: Mark, read_at: int) -> bool:
    """Return whether the next change of a file, whose mark was `file_mark` at `read_at` in ns, must change its mark.
    Time stamps may be as coarse as the kernel's tick, 1 to 10 ms, or whole seconds (git calls such a file racy)."""
    tick = 2 * _SECOND if file_mark[1] % _SECOND == 0 else _SECOND // 20
    return read_at - file_mark[1] > tick
