"""Where shared results are: two name spaces of bytes, `/ac` (entries by key) and `/cas` (blobs by SHA-256).

A store may be slow, gone, or answer nonsense. Each operation then raises StoreError, within a time limit that the
operating system's own limits do not extend: a name server, an NFS mount or a server that sends a byte a second.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeVar

from opmatrix.basics.errors import OpmatrixError, printable

_T = TypeVar("_T")
Kind = Literal["ac", "cas"]
KINDS: tuple[Kind, ...] = ("ac", "cas")
# Bytes of the longest answer that is read: an entry names one blob and the files that a compiler found.
LARGEST: dict[Kind, int] = {"ac": 1 << 26, "cas": 1 << 31}
ALLOWED = "file:///FOLDER, http://HOST/PATH, https://HOST/PATH, or what fsspec reaches, such as s3://BUCKET/PATH"


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
