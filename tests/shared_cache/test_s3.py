"""A shared cache in S3: the package s3fs and moto's server, which `./run tox run -e tests` has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.incremental.conftest import Clone
from tests.support.nginx import free_port
from tests.support.projects import ROOT

TOOLS = "OPMATRIX_TOOLS"
pytestmark = pytest.mark.tools
SECRETS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}

USE = """
import hashlib, json, os, sys, threading
from opmatrix.shared_cache.store import StoreError
from opmatrix.shared_cache.stores import open_store

url, timeout = sys.argv[1], float(sys.argv[2])
blob = os.urandom(6_000_000)
digest = hashlib.sha256(blob).hexdigest()
store = open_store(url, timeout=timeout)
report = {"url": store.url}
try:
    report["before"] = store.get("ac", "a" * 64), store.get("cas", digest)
    store.put("cas", digest, blob)
    store.put("ac", "a" * 64, b"old")
    store.put("ac", "a" * 64, b"entry")
    report["after"] = store.get("ac", "a" * 64).decode(), store.get("cas", digest) == blob
    digests = [f"{n:064x}" for n in range(32)]

    def work(own):
        for one in own:
            store.put("ac", one, one.encode())

    threads = [threading.Thread(target=work, args=(digests[n::4],)) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    report["threads"] = [store.get("ac", one) for one in digests] == [one.encode() for one in digests]
except StoreError as error:
    report["error"] = str(error)
store.close()
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def environ() -> Mapping[str, str]:
    tools = os.environ.get(TOOLS)
    if not tools or not Path(tools, "s3fs").is_dir():
        pytest.skip(f"{TOOLS} names no folder with requirements/cache.txt; `./run tox run -e tests` makes one")
    return {**os.environ, **SECRETS, "PYTHONPATH": f"{ROOT / 'pipeline'}:{tools}"}


@pytest.fixture(scope="module")
def endpoint(environ: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """S3, with the bucket `team`."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environ, stdout=file, stderr=file)
    url = f"http://127.0.0.1:{port}"
    try:
        _create_bucket(f"{url}/team", process, log)
        yield url
    finally:
        process.kill()
        process.wait()


def _create_bucket(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT")):
                return
        except OSError:
            time.sleep(0.1)  # it does not listen yet
    raise RuntimeError(f"moto's server does not answer: {log.read_text()}")


def use(url: str, environ: Mapping[str, str], *, timeout: float = 300) -> dict[str, object]:
    """Use the store in a process of its own, and return what it reports."""
    command = [sys.executable, "-c", USE, url, str(timeout)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0), done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


def test_s3_returns_what_was_stored(environ: Mapping[str, str], endpoint: str) -> None:
    found = use("s3://team/opmatrix/x", {**environ, "AWS_ENDPOINT_URL": endpoint})
    assert found == {"url": "s3://team/opmatrix/x", "before": [None, None], "after": ["entry", True], "threads": True}


def test_clones_share_in_s3(environ: Mapping[str, str], endpoint: str, tmp_path: Path) -> None:
    variables = {"PYTHONPATH": environ["PYTHONPATH"], "AWS_ENDPOINT_URL": endpoint, **SECRETS}
    first = Clone(tmp_path / "first", "s3://team/clones")
    first.run(**variables)
    second = Clone(tmp_path / "another place/second", "s3://team/clones")
    assert "1 run, 3 from the shared cache" in second.run(mode="read", **variables)
    assert second.ran() == ["a.h"]
    assert second.read("build/a.onnx") == first.read("build/a.onnx") == "HELLO "


def test_a_bucket_that_is_missing_is_an_error_and_is_not_created(environ: Mapping[str, str], endpoint: str) -> None:
    for _ in range(2):
        found = use("s3://other/opmatrix", {**environ, "AWS_ENDPOINT_URL": endpoint})
        assert "bucket does not exist" in str(found["error"]), found


def test_s3_that_is_gone_is_an_error_in_time(environ: Mapping[str, str]) -> None:
    found = use("s3://team/x", {**environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}, timeout=0.5)
    assert found["error"] == "s3://team/x: no answer within 0.5 s"
