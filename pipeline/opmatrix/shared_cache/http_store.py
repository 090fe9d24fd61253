"""A server of Bazel's HTTP caching protocol as a store: GET and PUT of `/ac/<digest>` and `/cas/<digest>`."""

from __future__ import annotations

import base64
import encodings.idna  # noqa: F401 - the first connection imports it, in a thread, and a child that doit forks then could not
import functools
import http.client
import os
import socket
import ssl
import threading
from contextlib import suppress
from urllib.parse import SplitResult, quote, unquote

from opmatrix.basics.errors import UsageError, one_line, printable
from opmatrix.shared_cache.store import LARGEST, Kind, StoreError, TooLargeError, without_password

TOKEN = "OPMATRIX_CACHE_TOKEN"
_PIECE = 1 << 20  # bytes that are read at a time: a wrong length must not take memory
_ANSWER = 200  # characters of an error's text that are shown
_HINTS = {
    401: f"Set user:password@ in the url, or a token in {TOKEN}",
    403: f"Set user:password@ in the url, or a token in {TOKEN}, with the right to do this",
    405: "The server does not allow this: a PUT needs a server that takes uploads, or mode = \"read\"",
    413: "The server limits the size of an upload; nginx: client_max_body_size",
    507: "The server's disk is full",
}  # fmt: skip
# A connection that the server closed while it was idle.
_CLOSED = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


def open_http(parts: SplitResult, *, timeout: float) -> HttpStore:
    """Return the store of a url. Raises UsageError."""
    shown = without_password(parts.geturl())
    if not parts.hostname:
        raise UsageError(
            f"the shared cache's url is {shown!r}, without a host; such as https://cache.example.com/opmatrix"
        )
    token = os.environ.get(TOKEN, "").strip()
    if parts.username is not None:  # before the environment's token
        both = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(both.encode()).decode()}"
    elif not (token.isascii() and token.isprintable()):
        raise UsageError(f"{TOKEN} has a character that no HTTP header can have, such as a line break")
    else:
        authorization = f"Bearer {token}" if token else ""
    return HttpStore(shown.rstrip("/"), parts, timeout=timeout, authorization=authorization)


class HttpStore:
    """Connections are kept for the next operation of any thread, and opened again where the server closed them."""

    def __init__(self, url: str, parts: SplitResult, *, timeout: float, authorization: str) -> None:
        self.url = url
        self._prefix = quote(parts.path.rstrip("/"), safe="/%!$&'()*+,;=:@~")
        self._headers = {"Authorization": authorization} if authorization else {}
        host = str(parts.hostname)
        self._connect = (
            functools.partial(
                http.client.HTTPSConnection, host, parts.port, timeout=timeout, context=ssl.create_default_context()
            )
            if parts.scheme == "https"
            else functools.partial(http.client.HTTPConnection, host, parts.port, timeout=timeout)
        )
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._closed = False

    def get(self, kind: Kind, digest: str, largest: int | None = None) -> bytes | None:
        answer, content = self._request("GET", kind, digest, None, largest)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise StoreError(f"{self.url}: {_refusal('GET', kind, answer, content)}")
        if _is_page(answer):
            raise StoreError(f"{self.url} answers with a web page, so it is no cache. Is the url right?")
        return content

    def put(self, kind: Kind, digest: str, content: bytes) -> None:
        answer, text = self._request("PUT", kind, digest, content)
        if answer.status not in (200, 201, 202, 204):
            raise StoreError(f"{self.url}: {_refusal('PUT', kind, answer, text)}")
        if text and _is_page(answer) and answer.status == 200:
            raise StoreError(f"{self.url} answers with a web page, so it is no cache. Is the url right?")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections = [*self._idle, *self._busy]
            self._idle.clear()
        for connection in connections:
            with suppress(OSError):  # the server has closed it
                if connection.sock:
                    connection.sock.shutdown(socket.SHUT_RDWR)  # another thread that reads from it stops
            connection.close()

    def _request(
        self, method: str, kind: Kind, digest: str, content: bytes | None, largest: int | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        while True:
            connection, kept = self._take()
            keep = False
            try:
                with suppress(BrokenPipeError, ConnectionResetError):  # a refused upload is answered before all is sent
                    path = f"{self._prefix}/{kind}/{digest}"
                    connection.request(method, path, body=content, headers=self._headers)
                with connection.getresponse() as answer:
                    read = self._body(answer, LARGEST[kind] if largest is None else largest)
                    keep = not answer.will_close
                    return answer, read
            except _CLOSED as error:
                if not kept or self._closed:
                    raise StoreError(f"{self.url}: the server closed the connection without an answer") from error
            except (OSError, http.client.HTTPException) as error:
                raise StoreError(f"{self.url}: {_what(error)}") from error
            except ValueError as error:
                raise StoreError(f"{self.url}: {error}") from error
            finally:
                self._give_back(connection, keep)

    def _body(self, answer: http.client.HTTPResponse, largest: int) -> bytes:
        """Return the whole body. Raises TooLargeError, and StoreError for another length than announced."""
        announced = answer.length
        if announced is not None and announced > largest:
            raise TooLargeError(f"{self.url}: the answer has {announced:,} bytes, allowed: {largest:,}")
        pieces, size = [], 0
        while piece := answer.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > largest:
                raise TooLargeError(f"{self.url}: the answer has more than {largest:,} bytes")
        if announced is not None and size != announced:
            raise StoreError(f"{self.url}: the answer is cut off: {size:,} of {announced:,} bytes")
        return b"".join(pieces)

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it was used before."""
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.url}: closed")
            kept = bool(self._idle)
            connection = self._idle.pop() if kept else self._connect()
            self._busy.add(connection)
        return connection, kept

    def _give_back(self, connection: http.client.HTTPConnection, keep: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if keep and not self._closed:
                self._idle.append(connection)
                return
        connection.close()


def _is_page(answer: http.client.HTTPResponse) -> bool:
    return answer.headers.get_content_type() == "text/html" and "Content-Type" in answer.headers


def _refusal(method: str, kind: Kind, answer: http.client.HTTPResponse, content: bytes) -> str:
    if 300 <= answer.status < 400:
        where = without_password(answer.headers.get("Location", ""))
        hint = f"It redirects to {where!r}: name that server in the url" if where else ""
    else:
        hint = _HINTS.get(answer.status, "")
    text = "" if _is_page(answer) else printable(one_line(content.decode(errors="replace"))[:_ANSWER])
    reason = printable(one_line(answer.reason)[:_ANSWER])
    return ". ".join(
        s for s in (f"{method} of /{kind}/ is answered with {answer.status} {reason}".strip(), text, hint) if s
    )


def _what(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer is cut off"
    if isinstance(error, http.client.HTTPException):
        return f"the answer is not HTTP ({printable(one_line(error)[:_ANSWER]) or type(error).__name__})"
    return one_line(getattr(error, "strerror", None) or error) or type(error).__name__
