"""Open the store at a url, and end its operations in time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from opmatrix.basics.errors import UsageError
from opmatrix.shared_cache.store import ALLOWED, FolderStore, Kind, Store, StoreError, open_fsspec, without_password

_T = TypeVar("_T")


def open_store(url: str, *, timeout: float) -> Store:
    """Return the store at a url; each of its operations ends after `timeout` seconds. Nothing is read or written yet.

    Raises UsageError for a url that does not name a store.
    """
    parts = _split(url)
    if parts.scheme == "file":
        return _Limited(FolderStore(_folder(parts)), timeout)
    if parts.scheme in ("http", "https"):
        from opmatrix.shared_cache.http_store import open_http  # its imports take 40 ms

        return _Limited(open_http(parts, timeout=timeout), timeout)
    return _Limited(open_fsspec(url, parts.scheme), timeout)


def folder_of(url: str) -> Path | None:
    """Return the folder that a url names, or None for any other store. Raises UsageError as `open_store`."""
    parts = _split(url)
    return _folder(parts) if parts.scheme == "file" else None


def _folder(parts: SplitResult) -> Path:
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UsageError(
            f"the shared cache's url is {without_password(parts.geturl())!r}; that of a folder has three slashes and "
            "an absolute path, such as file:///srv/opmatrix-cache"
        )
    return Path(unquote(parts.path))


def _split(url: str) -> SplitResult:
    shown = without_password(url)
    if "://" not in url:
        hint = f" For this folder: {Path(url).absolute().as_uri()}" if url else ""
        raise UsageError(f"the shared cache's url is {shown!r}, allowed: {ALLOWED}.{hint}")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for one that is no number
    except ValueError as error:
        raise UsageError(f"the shared cache's url is {shown!r}: {error}; allowed: {ALLOWED}") from None
    if parts.scheme in ("http", "https", "file") and (parts.query or parts.fragment):
        raise UsageError(f"the shared cache's url is {shown!r} with a query or a fragment; give it without")
    return parts


class _Limited:
    """A store each of whose operations ends in time: the operation has a thread of its own, which is left if it does
    not. A daemon's thread does not keep the process from ending."""

    def __init__(self, store: Store, timeout: float) -> None:
        self._store, self._timeout = store, timeout
        self.url = store.url

    def get(self, kind: Kind, digest: str, largest: int | None = None) -> bytes | None:
        return self._in_time(lambda: self._store.get(kind, digest, largest))

    def put(self, kind: Kind, digest: str, content: bytes) -> None:
        self._in_time(lambda: self._store.put(kind, digest, content))

    def close(self) -> None:
        self._store.close()

    def _in_time(self, operation: Callable[[], _T]) -> _T:
        results: list[_T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(operation())
            except BaseException as error:  # the caller's thread raises it
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True, name="shared-cache")
        try:
            thread.start()
        except RuntimeError as error:  # the limit of threads, or Python ends
            raise StoreError(f"{self.url}: {error}") from error
        thread.join(self._timeout)
        if errors:
            raise errors[0]
        if not results:
            raise StoreError(f"{self.url}: no answer within {self._timeout:g} s")
        return results[0]
