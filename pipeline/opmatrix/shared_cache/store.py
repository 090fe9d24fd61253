"""Where shared results are: two name spaces of bytes, `/ac` (entries by key) and `/cas` (blobs by SHA-256).

A store may be slow, gone, or answer nonsense: each operation then raises StoreError, within a time limit that limits of
the operating system, such as those of an NFS mount, do not extend. A folder has a file `ac/<digest>` or `cas/<digest>`
per entry, as nginx serves it over HTTP, and what fsspec reaches has objects of these names. `stores` opens them all.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from opmatrix.basics.errors import OpmatrixError, UsageError, did_you_mean, disk_fault, one_line, printable
from opmatrix.basics.files import open_regular, parts_of

Kind = Literal["ac", "cas"]
KINDS: tuple[Kind, ...] = ("ac", "cas")
# Bytes of the longest answer that is read: an entry names one blob and the files that a compiler found.
LARGEST: dict[Kind, int] = {"ac": 1 << 26, "cas": 1 << 31}
ALLOWED = "file:///FOLDER, http://HOST/PATH, https://HOST/PATH, or what fsspec reaches, such as s3://BUCKET/PATH"
# A file is marked as used at most this often, in seconds: a mark is a write.
USED_EVERY = 3600
# Begins the names of files that are being written.
PARTIAL = "."
# ESTALE: on NFS, another machine replaced the file while it was read.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_INSTALL = 'pip install "opmatrix[cache]"'


class StoreError(OpmatrixError):
    """A store that is slow or gone, refuses, or answers nonsense."""


class TooLargeError(StoreError):
    """Something that has more bytes than it may have."""


class Store(Protocol):
    """Bytes by kind and digest. Threads may call it side by side."""

    @property
    def url(self) -> str:
        """Where it is, without passwords."""
        ...

    def get(self, kind: Kind, digest: str, largest: int | None = None) -> bytes | None:
        """Return what is stored, or None. Whether a blob has its digest, the caller checks. Raises StoreError; of more
        than `largest` bytes, by default LARGEST, TooLargeError, and then reads no more."""
        ...

    def put(self, kind: Kind, digest: str, content: bytes) -> None:
        """Store bytes, in place of others. Raises StoreError."""
        ...

    def close(self) -> None:
        """Close connections. Operations that still run in other threads end with StoreError."""
        ...


def without_password(url: str) -> str:
    """Return a url for messages: without user, password, query and fragment."""
    before, separator, rest = url.partition("://")
    rest = rest.partition("?")[0].partition("#")[0]
    host, slash, path = rest.partition("/")
    return printable(f"{before}{separator}{host.rpartition('@')[2]}{slash}{path}")


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
            with suppress(OSError):  # of a folder that may only be read
                os.utime(path)  # which `opmatrix cache --gc` reads
        return content

    def put(self, kind: Kind, digest: str, content: bytes) -> None:
        path = self._root / kind / digest
        partial = path.with_name(f"{PARTIAL}{digest}.{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(partial, content)
            partial.replace(path)
        except OSError as error:
            with suppress(OSError):  # of the disk that could not be written; gc removes the file later
                partial.unlink(missing_ok=True)
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


def open_fsspec(url: str, scheme: str) -> FsspecStore:
    """Return the store of a url. Raises UsageError, with the command that installs what is missing."""
    shown = without_password(url)
    try:
        import fsspec
        from fsspec.registry import known_implementations as known
    except ImportError:
        raise UsageError(f"the shared cache {shown} needs fsspec. Run: {_INSTALL}") from None
    if scheme not in {*fsspec.available_protocols()}:
        near = did_you_mean(scheme, [*known, "https"])
        raise UsageError(f"the shared cache's url is {shown!r}, of no known kind {scheme!r}{near}; allowed: {ALLOWED}")
    try:
        system, root = fsspec.core.url_to_fs(url)
        # s3fs reads the descriptions of AWS's services here, half a second, and not within an operation's time limit.
        getattr(system, "connect", lambda: None)()
    except ImportError as error:
        package = known.get(scheme, {}).get("class", "").partition(".")[0]
        packages = f"{_INSTALL} {package}" if package and package != "fsspec" else f"{_INSTALL}, and: {one_line(error)}"
        raise UsageError(f"the shared cache {shown} needs another package. Run: {packages}") from None
    except Exception as error:  # each package of fsspec raises classes of its own
        raise UsageError(f"the shared cache {shown} cannot be opened: {_what(error)}") from error
    return FsspecStore(shown.rstrip("/"), system, root.rstrip("/"))


class FsspecStore:
    """Objects of a file system of fsspec; what it raises has classes of its own packages."""

    def __init__(self, url: str, system: Any, root: str) -> None:
        self.url, self._system, self._root = url, system, root

    def get(self, kind: Kind, digest: str, largest: int | None = None) -> bytes | None:
        path, most = f"{self._root}/{kind}/{digest}", LARGEST[kind] if largest is None else largest
        try:
            content = bytes(self._system.cat_file(path, start=0, end=most + 1))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise StoreError(f"{self.url}: {_what(error)}") from error
        if len(content) > most:
            raise TooLargeError(f"{self.url}: {kind}/{digest} has more than {most:,} bytes")
        return content

    def put(self, kind: Kind, digest: str, content: bytes) -> None:
        folder = f"{self._root}/{kind}"
        try:
            try:
                self._system.pipe_file(f"{folder}/{digest}", content)
            except FileNotFoundError:
                if not self._system.exists(self._root):  # such as a bucket, which nobody asked to create
                    raise
                self._system.makedirs(folder, exist_ok=True)
                self._system.pipe_file(f"{folder}/{digest}", content)
        except Exception as error:
            raise StoreError(f"{self.url}: {_what(error)}") from error

    def close(self) -> None:
        """fsspec keeps its connections until the process ends."""


def _what(error: Exception) -> str:
    return printable(one_line(error)[:500]) or type(error).__name__
