"""Remove what is least needed from the folder of a shared cache, while other processes read and write it.

A reader that finds an entry and no longer its blob has a miss. A writer stores the blob before the entry, so a blob
without an entry may get one soon: it is removed only after `SETTLED` seconds, and nothing is removed that was used or
written again since it was listed.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from opmatrix.shared_cache.entry import decode
from opmatrix.shared_cache.store import LARGEST, PARTIAL, Kind, StoreError, TooLargeError, read

SETTLED = 3600
_NAME = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of the folder, as it was listed."""

    path: Path
    size: int
    written: float
    used: float


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The entries and blobs by digest, and files of interrupted writes."""

    entries: Mapping[str, File]
    blobs: Mapping[str, File]
    partial: tuple[File, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in (*self.entries.values(), *self.blobs.values(), *self.partial))


@dataclass(kw_only=True)
class Removed:
    """How many files were removed, and the bytes in them."""

    entries: int = 0
    blobs: int = 0
    partial: int = 0
    size: int = 0


def list_files(folder: Path) -> Listed:
    """List a folder. Raises StoreError if it cannot be read."""
    # Entries first: the blob of an entry that is listed exists already.
    entries, of_entries = _files(folder, "ac")
    blobs, of_blobs = _files(folder, "cas")
    return Listed(entries=entries, blobs=blobs, partial=(*of_entries, *of_blobs))


def collect_garbage(folder: Path, *, limit: int | None) -> Removed:
    """Remove leftovers, then the entries that are unused for longest until `limit` bytes hold everything.

    Leftovers are files of interrupted writes, entries that cannot be read or have no blob, and blobs that no entry
    names. Raises StoreError if the folder cannot be read or written.
    """
    listed = list_files(folder)
    removed = Removed()
    settled = time.time() - SETTLED
    blob_of = {name: _blob(file.path) for name, file in listed.entries.items()}
    named = Counter(blob for blob in blob_of.values() if blob)
    for file in listed.partial:
        if file.written < settled:
            removed.partial += _remove(file, removed)
    for name, file in listed.entries.items():
        if blob_of[name] not in listed.blobs and file.written < settled:
            removed.entries += _remove(file, removed)
    for name, file in listed.blobs.items():
        if not named[name] and file.written < settled:
            removed.blobs += _remove(file, removed)
    if limit is None:
        return removed
    # Not by the access time of entries, which were just read.
    by_use = sorted(
        (max(file.written, listed.blobs[blob].used), file.written, name, blob)
        for name, file in listed.entries.items()
        if (blob := blob_of[name]) and blob in listed.blobs
    )
    for *_, name, blob in by_use:
        if listed.size - removed.size <= limit:
            break
        gone = _remove(listed.entries[name], removed)
        removed.entries += gone
        named[blob] -= gone
        if not named[blob]:
            removed.blobs += _remove(listed.blobs[blob], removed)
    return removed


def _files(folder: Path, kind: Kind) -> tuple[dict[str, File], list[File]]:
    complete, partial, entries = {}, [], list[os.DirEntry[str]]()
    with _only_missing(folder / kind), os.scandir(folder / kind) as found:
        entries += found
    for entry in entries:
        with _only_missing(folder / kind):  # removed meanwhile
            status = entry.stat()
            if not entry.is_file():
                continue
            used = max(status.st_mtime, status.st_atime)
            file = File(path=Path(entry.path), size=status.st_size, written=status.st_mtime, used=used)
            if _NAME.fullmatch(entry.name):
                complete[entry.name] = file
            elif entry.name.startswith(PARTIAL):
                partial.append(file)
    return complete, partial


def _blob(path: Path) -> str | None:
    """Return the digest of the blob that an entry names, or None for an entry that cannot be read."""
    with suppress(ValueError, TooLargeError), _only_missing(path):
        return decode(read(path, LARGEST["ac"])[0])[0]
    return None


def _remove(file: File, removed: Removed) -> bool:
    """Remove a file unless it was used or written since it was listed."""
    with _only_missing(file.path):
        if file.path.stat().st_mtime == file.written:
            file.path.unlink()
            removed.size += file.size
            return True
    return False


@contextmanager
def _only_missing(path: Path) -> Iterator[None]:
    """Ignore that a file or folder is not there. Raises StoreError for any other error of the disk."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreError(f"'{path}' of the shared cache: {error.strerror}") from error
