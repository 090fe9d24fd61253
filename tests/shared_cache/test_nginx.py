"""nginx from Debian's package as the shared cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from opmatrix.shared_cache.entry import decode, encode
from opmatrix.shared_cache.store import FolderStore, Store, StoreError
from opmatrix.shared_cache.stores import open_store
from tests.shared_cache.conftest import use_in_threads
from tests.support.nginx import SERVER, WITH_PASSWORDS, Nginx, free_port, nginx

KEY = "a" * 64
BLOB = os.urandom(3_000_000)
DIGEST = hashlib.sha256(BLOB).hexdigest()
ENTRY = encode(DIGEST, len(BLOB), b"{}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    with nginx(tmp_path_factory.mktemp("nginx")) as server:
        yield server


@pytest.fixture
def store(server: Nginx) -> Iterator[Store]:
    store = open_store(f"{server.url}/team/x", timeout=300)
    yield store
    store.close()


def test_an_entry_and_its_blob(server: Nginx, store: Store) -> None:
    assert (store.get("ac", KEY), store.get("cas", DIGEST)) == (None, None)
    store.put("cas", DIGEST, BLOB)
    store.put("ac", KEY, b"old")
    store.put("ac", KEY, ENTRY)
    assert decode(store.get("ac", KEY) or b"") == (DIGEST, len(BLOB), b"{}")
    assert store.get("cas", DIGEST) == BLOB
    # On the server's machine, the folder that it serves is a store as well: `opmatrix cache --gc` works there.
    assert FolderStore(server.folder / "team/x").get("cas", DIGEST) == BLOB


def test_nginx_notes_that_a_file_was_read(server: Nginx, store: Store) -> None:
    """By the access time, from which `opmatrix cache --gc` knows what is unused."""
    store.put("cas", DIGEST, BLOB)
    path = server.folder / "team/x/cas" / DIGEST
    if os.statvfs(path).f_flag & os.ST_NOATIME:
        pytest.skip("the file system keeps no access times (noatime)")
    os.utime(path, (0, 0))
    assert store.get("cas", DIGEST) == BLOB
    assert path.stat().st_atime > 0


def test_eight_threads(store: Store) -> None:
    use_in_threads(store)


@pytest.mark.parametrize("asked_meanwhile", [True, False])
def test_a_server_that_is_restarted(tmp_path: Path, asked_meanwhile: bool) -> None:
    """Not asked meanwhile, the store has a connection that the new server does not know."""
    port = free_port()
    with nginx(tmp_path, port=port) as server:
        store = open_store(server.url, timeout=300)
        store.put("ac", KEY, ENTRY)
    if asked_meanwhile:
        with pytest.raises(StoreError, match=rf"^http://127.0.0.1:{port}: Connection refused$"):
            store.get("ac", KEY)
    with nginx(tmp_path, port=port):
        assert store.get("ac", KEY) == ENTRY
    store.close()


def test_what_nginx_refuses_has_a_remedy(tmp_path: Path) -> None:
    small = SERVER.replace("client_max_body_size 2g", "client_max_body_size 1k")
    with nginx(tmp_path / "small", server=small) as server:
        store = open_store(server.url, timeout=300)
        with pytest.raises(StoreError, match=r"PUT of /cas/ is answered with 413 .* nginx: client_max_body_size"):
            store.put("cas", DIGEST, BLOB)
        store.put("ac", KEY, ENTRY)
        store.close()
    with nginx(tmp_path / "reads", server=SERVER.replace("dav_methods PUT;", "")) as server:
        store = open_store(server.url, timeout=300)
        with pytest.raises(StoreError, match=r'PUT of /ac/ is answered with 405 .* or mode = "read"'):
            store.put("ac", KEY, ENTRY)
        store.close()


def test_everyone_reads_and_one_user_writes(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("ci:{PLAIN}secret\n")
    with nginx(tmp_path, server=WITH_PASSWORDS) as server:
        writer = open_store(server.url.replace("//", "//ci:secret@"), timeout=300)
        writer.put("ac", KEY, ENTRY)
        writer.close()
        reader = open_store(server.url, timeout=300)
        assert reader.get("ac", KEY) == ENTRY
        with pytest.raises(StoreError, match=r"PUT of /ac/ is answered with 401 Unauthorized. Set user:password@ in"):
            reader.put("ac", KEY, b"")
        reader.close()


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    text = SERVER.replace("8080;", f"8080 ssl; ssl_certificate {tmp_path}/cert.pem; "
                          f"ssl_certificate_key {tmp_path}/key.pem;")  # fmt: skip
    with nginx(tmp_path, server=text, scheme="https") as server:
        store = open_store(server.url, timeout=300)
        with pytest.raises(StoreError, match=r"CERTIFICATE_VERIFY_FAILED.*self.signed certificate"):
            store.get("ac", KEY)
        store.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        store = open_store(server.url, timeout=300)
        store.put("cas", DIGEST, BLOB)
        assert store.get("cas", DIGEST) == BLOB
        store.close()
