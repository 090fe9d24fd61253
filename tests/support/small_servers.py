"""Small HTTP servers in threads of the test: a cache in Bazel's protocol, and servers that answer anything."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class CacheServer(ThreadingHTTPServer):
    """A remote cache of Bazel's protocol: GET and PUT of /ac/KEY and /cas/KEY, each kept in `entries` by its path."""

    daemon_threads = True

    def __init__(self, authorization: str = "") -> None:
        self.entries: MutableMapping[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.connections = 0
        self.authorization = authorization
        super().__init__(("127.0.0.1", 0), _Requests)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: CacheServer

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        if self._allowed():
            found = self.server.entries.get(self.path)
            self._answer(404 if found is None else 200, found or b"")

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self._allowed():
            kind, digest = self.path.split("/")[-2:]
            right = kind != "cas" or hashlib.sha256(content).hexdigest() == digest
            if right:
                self.server.entries[self.path] = content
            self._answer(200 if right else 400)

    def _allowed(self) -> bool:
        self.server.requests.append((self.command, self.path))
        right = not self.server.authorization or self.headers["Authorization"] == self.server.authorization
        if not right:
            self._answer(401)
        return right

    def _answer(self, code: int, content: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def cache_server(authorization: str = "") -> Iterator[CacheServer]:
    """Serve an empty cache; `authorization` is the header that each request must have, "" for any."""
    with CacheServer(authorization) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def socket_server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Call `answer` with each connection, in a thread of its own; yield the url."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):  # closed
                while True:
                    threading.Thread(target=_answer, args=(answer, listening.accept()[0]), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def _answer(answer: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with connection, suppress(OSError):  # the client has closed it
        answer(connection)


def read_request(connection: socket.socket) -> None:
    """Read a request with its body, of which a part may come later: what a server closes unread, the kernel answers
    with a reset, which can overtake the server's own answer."""
    with connection.makefile("rb") as file:
        length = 0
        while (line := file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not line or len(file.read(length)) != length:
            raise ConnectionResetError
