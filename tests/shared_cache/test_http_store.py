"""Bazel's HTTP caching protocol as a store, with servers that are right, slow, gone, or answer anything."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.shared_cache import http_store
from opmatrix.shared_cache.store import LARGEST, Store, StoreError
from opmatrix.shared_cache.stores import open_store
from tests.incremental.conftest import wait_for
from tests.shared_cache.conftest import use_in_threads
from tests.support.small_servers import CacheServer, cache_server, read_request, socket_server

A = "a" * 64
BLOB = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(BLOB).hexdigest()


@pytest.fixture
def server() -> Iterator[CacheServer]:
    with cache_server() as server:
        yield server


class Opened(Protocol):
    def __call__(self, url: str, timeout: float = 60) -> Store: ...


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Open stores, and close them after the test."""
    stores: list[Store] = []

    def open_one(url: str, timeout: float = 60) -> Store:
        stores.append(open_store(url, timeout=timeout))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


def test_a_server_returns_what_was_stored(server: CacheServer, opened: Opened) -> None:
    store = opened(server.url + "/team ö/x/")
    assert (store.get("ac", A), store.get("cas", DIGEST)) == (None, None)
    store.put("ac", A, b"entry")
    store.put("cas", DIGEST, BLOB)
    assert (store.get("ac", A), store.get("cas", DIGEST)) == (b"entry", BLOB)
    assert [*server.entries] == [f"/team%20%C3%B6/x/ac/{A}", f"/team%20%C3%B6/x/cas/{DIGEST}"]
    assert server.connections == 1  # kept
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.get("ac", A)


def test_threads_share_connections(server: CacheServer, opened: Opened) -> None:
    use_in_threads(opened(server.url))
    assert server.connections <= 8


@pytest.mark.parametrize(
    ("userinfo", "token", "expected"),
    [
        ("me:p%40ss:wörd@", "other", "Basic " + base64.b64encode("me:p@ss:wörd".encode()).decode()),
        ("", " ey.J-_~ \n", "Bearer ey.J-_~"),
    ],
    ids=["url", "token"],
)
def test_a_password_and_a_token(
    userinfo: str, token: str, expected: str, monkeypatch: pytest.MonkeyPatch, opened: Opened
) -> None:
    monkeypatch.setenv("OPMATRIX_CACHE_TOKEN", token)
    with cache_server(expected) as server:
        url = server.url.replace("//", f"//{userinfo}")
        store = opened(url)
        store.put("ac", A, b"entry")
        assert store.get("ac", A) == b"entry"
        assert store.url == server.url
    monkeypatch.delenv("OPMATRIX_CACHE_TOKEN")
    with cache_server(expected) as server, pytest.raises(StoreError) as error:
        opened(server.url.replace("//", "//me:secret@")).get("ac", A)
    assert str(error.value) == (
        f"{server.url}: GET of /ac/ is answered with 401 Unauthorized. Set user:password@ in the url, or a token "
        "in OPMATRIX_CACHE_TOKEN"
    )


def test_a_token_that_no_header_can_have_is_an_error_without_it(
    monkeypatch: pytest.MonkeyPatch, opened: Opened
) -> None:
    monkeypatch.setenv("OPMATRIX_CACHE_TOKEN", "secret\r\nX-Other: 1")
    with pytest.raises(UsageError, match=r"^OPMATRIX_CACHE_TOKEN has a character that no HTTP header can") as error:
        opened("https://localhost", timeout=1)
    assert "secret" not in str(error.value)


def answers(content: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(content)

    return answer


def test_a_connection_that_the_server_closed_is_opened_again(opened: Opened) -> None:
    """The server answers one request per connection, without saying that it closes it."""
    with socket_server(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as url:
        store = opened(url)
        for _ in range(3):
            assert store.get("ac", A) == b"ok"
            time.sleep(0.05)  # the server's end of the connection arrives
            store.put("ac", A, b"x")
            time.sleep(0.05)


LONG = 60  # seconds for which a slow server goes on, and then closes the connection, which is another error


def drip(connection: socket.socket) -> None:
    """Send a byte now and then, so that no single read waits for long."""
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    for _ in range(LONG * 20):
        connection.sendall(b"x")
        time.sleep(0.05)


def drip_header(connection: socket.socket) -> None:
    for _ in range(LONG * 20):
        connection.sendall(b"H")
        time.sleep(0.05)


def silent(connection: socket.socket) -> None:
    read_request(connection)
    time.sleep(LONG)


@pytest.mark.parametrize("answer", [drip, drip_header, silent], ids=lambda a: a.__name__)
def test_a_slow_server_is_an_error_in_time(answer: Callable[[socket.socket], None], opened: Opened) -> None:
    """No thread is left when the store is closed."""
    with socket_server(answer) as url:
        store = opened(url, timeout=0.3)
        with pytest.raises(StoreError, match=f"^{url}: no answer "):
            store.get("ac", A)
        assert [t for t in threading.enumerate() if t.name == "shared-cache"]
        store.close()
        wait_for(lambda: not [t for t in threading.enumerate() if t.name == "shared-cache"])


def head(text: str) -> bytes:
    """Return the lines of a header, which "|" separates, and the empty line after it."""
    return f"HTTP/1.1 {text}||".replace("|", "\r\n").encode()


PAGE = head("200 OK|Content-Type: text/html|Content-Length: 20") + b"<html>Sign in</html>"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (head("200 OK|Content-Length: 10") + b"short", "the answer is cut off: 5 of 10 bytes"),
        (head("200 OK|Transfer-Encoding: chunked") + b"20\r\nshort", "the answer is cut off"),
        (head("200 OK|Transfer-Encoding: chunked") + b"zz\r\nshort", "the answer is "),
        (head("200 OK|Content-Length: 99999999999999") + b"x", "has 99,999,999,999,999 bytes, allowed: 67,108,864"),
        (PAGE, "answers with a web page"),
        (head("206 Partial|Content-Length: 1") + b"x", "is answered with 206 Partial"),
        (head("302 Found|Location: https://me:secret@sso/in?t=secret|Content-Length: 0"),
         "with 302 Found. It redirects to 'https://sso/in': name that server in the url"),
        (head("400 Bad Request|Content-Length: 12") + b"no\nsuch\x1b[1mx", r"400 Bad Request. no such\\x1b\[1mx$"),
        (PAGE.replace(b"200 OK", b"403 Forbidden"), "with 403 Forbidden. Set user"),
        (head("503 |Content-Length: 0"), "GET of /ac/ is answered with 503$"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the answer is not HTTP"),
        (b"", "the server closed the connection without an answer"),
        (head("200 OK" + "|X: y" * 200), "the answer is not HTTP"),
    ],
    ids=lambda p: "" if isinstance(p, str) else p[:25].decode(errors="replace").strip(),
)  # fmt: skip
def test_a_wrong_answer_is_an_error(content: bytes, message: str, opened: Opened) -> None:
    with socket_server(answers(content)) as url:
        with pytest.raises(StoreError, match=message) as error:
            opened(url).get("ac", A)
        assert str(error.value).startswith(url)
        assert "secret" not in str(error.value)
        assert "\n" not in str(error.value)


def test_an_answer_that_grows_beyond_the_limit_is_an_error(monkeypatch: pytest.MonkeyPatch, opened: Opened) -> None:
    monkeypatch.setitem(LARGEST, "ac", 1000)
    with socket_server(answers(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 1001)) as url, pytest.raises(StoreError) as error:
        opened(url).get("ac", A)
    assert str(error.value) == f"{url}: the answer has more than 1,000 bytes"


def test_a_refused_upload_is_an_error_with_the_servers_reason(opened: Opened) -> None:
    """nginx answers 413 and closes the connection before it has read the body."""

    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)

    message = "PUT of /cas/ is answered with 413 .*nginx: client_max_body_size"
    with socket_server(refuse) as url, pytest.raises(StoreError, match=message):
        opened(url).put("cas", DIGEST, BLOB * 10)


def test_an_upload_that_a_page_answers_is_an_error(opened: Opened) -> None:
    with socket_server(answers(PAGE)) as url, pytest.raises(StoreError, match="web page"):
        opened(url).put("ac", A, b"x")


def test_a_server_that_is_gone_is_an_error(opened: Opened) -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(StoreError, match=rf"^{url}: Connection refused$"):
            opened(url).get("ac", A)


def test_a_server_without_tls_is_an_error(opened: Opened) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(head("400 Bad Request"))
        while connection.recv(65536):  # until the client closes it: no reset overtakes the answer
            pass

    with socket_server(answer) as url, pytest.raises(StoreError, match=r"^https://127.0.0.1:\d+: .*SSL"):
        opened(url.replace("http:", "https:")).get("ac", A)


def test_a_name_server_that_does_not_answer_is_an_error_in_time(
    monkeypatch: pytest.MonkeyPatch, opened: Opened
) -> None:
    """No time limit of a socket covers it."""
    waiting = threading.Event()
    monkeypatch.setattr(http_store.socket, "getaddrinfo", lambda *_: waiting.wait())
    with pytest.raises(StoreError, match=r"^http://cache.example.com: no answer within 0.2 s$"):
        opened("http://cache.example.com", timeout=0.2).get("ac", A)
    waiting.set()
