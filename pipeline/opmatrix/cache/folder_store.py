"""A folder as a store, on a disk or a network file system: a file `ac/<digest>` or `cas/<digest>` per entry.

nginx serves the same folder over HTTP, because Bazel's protocol has the same paths.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from opmatrix.basics.errors import disk_fault
from opmatrix.basics.files import open_regular, parts_of
from opmatrix.cache.store import LARGEST, Kind, StoreError, TooLargeError

# A file is marked as used at most this often, in seconds: a mark is a write.
USED_EVERY = 3600
# Begins the names of files that are being written.
PARTIAL = "."
# ESTALE: on NFS, another machine replaced the file while it was read.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class FolderStore:
    """Files that are written under another name and renamed, so that no reader sees a part of one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = root.as_uri()

    def get(self, kind: Kind, digest: str, largest: int | None = None) -> bytes | None:
        path, most = self._root / kind / digest, LARGEST[kind] if largest is None else largest
        try:
            content, status = read(path, most)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise StoreError(f"cannot read '{path}' of the shared cache: {error.strerror}") from error
        if time.time() - max(status.st_mtime, status.st_atime) > USED_EVERY:
            _mark_used(path)
        return content

    def put(self, kind: Kind, digest: str, content: bytes) -> None:
        path = self._root / kind / digest
        partial = path.with_name(f"{PARTIAL}{digest}.{secrets.token_hex(8)}")
        try:
            try:
                _write(partial, content)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(partial, content)
            partial.replace(path)
        except OSError as error:
            _remove(partial)
            why = disk_fault(error) or f"cannot write '{path.parent}': {error.strerror}"
            raise StoreError(f"{why}. It is the folder of the shared cache") from error

    def close(self) -> None:
        """Nothing is open."""


def read(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    """Return the content of a file of at most so many bytes. Raises TooLargeError, and OSError for no regular file."""
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size > most:
            raise TooLargeError(f"'{path}' of the shared cache has {status.st_size:,} bytes, allowed: {most:,}")
        return b"".join(parts_of(file)), status


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)


def _remove(path: Path) -> None:
    with suppress(OSError):  # of the disk that could not be written; gc removes the file later
        path.unlink(missing_ok=True)


def _mark_used(path: Path) -> None:
    """Set the times of a file to now, which `opmatrix cache --gc` reads."""
    with suppress(OSError):  # of a folder that may only be read
        os.utime(path)
