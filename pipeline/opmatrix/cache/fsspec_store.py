"""What fsspec reaches as a store, such as S3 by the package s3fs: objects `ac/<digest>` and `cas/<digest>`."""

from __future__ import annotations

from typing import Any

from opmatrix.basics.errors import UsageError, did_you_mean, one_line, printable
from opmatrix.cache.store import ALLOWED, LARGEST, Kind, StoreError, TooLargeError, without_password

_INSTALL = 'pip install "opmatrix[cache]"'


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
