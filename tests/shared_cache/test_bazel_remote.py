"""bazel-remote as the shared cache, with its validation of entries on. OPMATRIX_BAZEL_REMOTE names the program."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opmatrix.shared_cache.entry import decode, encode
from opmatrix.shared_cache.store import Store, StoreError
from opmatrix.shared_cache.stores import open_store
from tests.incremental.conftest import Clone
from tests.support.nginx import free_port

KEY = hashlib.sha256(b"key").hexdigest()
BLOB = os.urandom(3_000_000)
DIGEST = hashlib.sha256(BLOB).hexdigest()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = os.environ.get("OPMATRIX_BAZEL_REMOTE") or shutil.which("bazel-remote")
    if not program:
        pytest.skip("no bazel-remote on PATH, and OPMATRIX_BAZEL_REMOTE names none")
    folder, port = tmp_path_factory.mktemp("bazel-remote"), free_port()
    options = ["--dir", str(folder / "cache"), "--max_size", "1"]
    addresses = ["--http_address", f"127.0.0.1:{port}", "--grpc_address", "none"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, *options, *addresses], stdout=log, stderr=log)
    try:
        _wait(port, process, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"bazel-remote does not listen: {log.read_text()}")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(f"{url}/a/test", timeout=300)
    yield store
    store.close()


def test_an_entry_is_there_once_its_blob_is(store: Store) -> None:
    assert store.get("ac", KEY) is None
    store.put("ac", KEY, encode(DIGEST, len(BLOB), b"{}"))
    assert store.get("ac", KEY) is None  # it lacks the blob
    store.put("cas", DIGEST, BLOB)
    assert decode(store.get("ac", KEY) or b"") == (DIGEST, len(BLOB), b"{}")
    assert store.get("cas", DIGEST) == BLOB


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("cas", BLOB, "checksums don't match"),
        ("ac", b"no ActionResult", "400 Bad Request. Failed to"),
        ("ac", encode("x" * 64, 3, b""), 'invalid Digest for path "outputs"'),
    ],
    ids=["blob", "entry", "digest"],
)
def test_it_validates_what_it_is_given(store: Store, kind: str, content: bytes, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        store.put(kind, KEY, content)  # type: ignore[arg-type]  # a str, of two values


@pytest.mark.incremental
def test_clones_share_on_it(url: str, tmp_path: Path) -> None:
    first = Clone(tmp_path / "first", url)
    first.run()
    second = Clone(tmp_path / "another place/second", url)
    assert "1 run, 3 from the shared cache" in second.run(mode="read")
    assert second.ran() == ["a.h"]
    assert second.read("build/a.onnx") == first.read("build/a.onnx") == "HELLO "
