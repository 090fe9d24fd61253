"""Two clones and one shared cache: what one computed, the other takes, and nothing that is not the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from tests.incremental.conftest import ALL, Clone, replace_blobs
from tests.support.small_servers import read_request, socket_server

pytestmark = pytest.mark.incremental


@pytest.mark.parametrize("processes", [1, 4])
def test_another_clone_computes_nothing(first: Clone, second: Clone, processes: int) -> None:
    out = second.run("-n", str(processes))
    assert second.ran() == ["a.h"]
    assert second.read("build/a.onnx") == first.read("build/a.onnx") == "HELLO "
    assert "4 steps in" in out and "1 run, 3 from the shared cache" in out
    assert "all up to date" in second.run()
    assert "all up to date" in second.run(OPMATRIX_CACHE="off")


def test_what_differs_is_computed_and_then_shared_back(first: Clone, second: Clone) -> None:
    second.steps[1]["config"] = "numpy 3"
    assert second.runs() == ["a.h", "a.npz"]
    assert second.runs("-a") == ALL
    second.write("a.txt", "good day")
    assert second.runs() == ALL
    first.write("a.txt", "good day")
    first.steps[1]["config"] = "numpy 3"
    assert first.runs() == ["a.h"]
    second.write("a.txt", "good day# a remark: only the first step differs, its output does not")
    assert second.runs() == ["a.g", "a.h"]


def test_a_clone_that_reads_only_stores_nothing(tmp_path: Path, store: Path) -> None:
    clone = Clone(tmp_path / "reader", store.as_uri())
    clone.run(mode="read")
    assert not store.exists()


def test_a_failed_step_is_not_shared(tmp_path: Path, store: Path) -> None:
    for name in ("first", "second"):
        clone = Clone(tmp_path / name, store.as_uri())
        clone.step("compile:b", "say", "a.txt", "build/b.so")
        done = clone.doit(OPMATRIX_CACHE=clone.url, OPMATRIX_CACHE_MODE="write")
        assert done.returncode != 0
        assert "b.so" in clone.ran()


def test_a_damaged_blob_is_computed_anew(store: Path, second: Clone) -> None:
    for blob in (store / "cas").iterdir():
        blob.write_bytes(blob.read_bytes().replace(b"HELLO", b"JELLO"))
    out = second.run(mode="write")
    assert sorted(second.ran()) == ALL
    assert second.read("build/a.onnx") == "HELLO "
    assert "the blob has another digest than its name, and 2 more" in out
    shutil.rmtree(second.root / "build")
    assert second.runs() == ["a.h"]


def test_a_blob_that_writes_elsewhere_is_refused(store: Path, second: Clone) -> None:
    head = {"files": [["../stolen", 3, False]], "links": {}, "found": {}, "log": ""}
    replace_blobs(store, lambda blob: json.dumps(head).encode() + b"\nhey")
    assert "it holds other files than the step writes" in second.run(mode="read")
    assert sorted(second.ran()) == ALL
    assert not (second.root.parent / "stolen").exists()


class Discovering(Clone):
    """A clone with a step that discovers an input."""

    def __init__(self, root: Path, store: Path) -> None:
        super().__init__(root, store.as_uri())
        step = self.step("compile:a", "split", "names.txt", "build", discovered_inputs="build/found")
        step["writes"] = ["build/lib"]
        self.write("names.txt", "lib")
        self.write("build/found", "")


def test_an_input_that_a_step_discovers_must_be_the_same(tmp_path: Path, store: Path) -> None:
    header = tmp_path / "system.h"
    header.write_text("as first")
    for name, edit, computed in (("first", False, True), ("second", False, False), ("third", True, True)):
        if edit:
            header.write_text("of another distribution")
        clone = Discovering(tmp_path / name, store)
        clone.write("build/found", f"{header}\n")
        clone.run()
        assert ("build" in clone.ran()) is computed


@pytest.mark.parametrize(
    ("found", "listed"),
    [
        pytest.param("", "/proc/kmsg", id="without_a_digest"),
        pytest.param("TMP/pipe", None, id="pipe"),
        pytest.param("TMP/folder", None, id="folder"),
        pytest.param("TMP/zeros", None, id="endless"),
        pytest.param("TMP/sparse", None, id="sparse"),
        pytest.param("", "TMP/pipe", id="a_pipe_without_a_digest"),
        pytest.param("", "TMP/zeros", id="endless_without_a_digest"),
        pytest.param("TMP/" + "x" * 300, None, id="long_name"),
        pytest.param("/dev/stdin", None, id="terminal"),
        pytest.param("{packages}/../../../../../../../../../../../dev/zero", None, id="outside_of_packages"),
    ],
)
def test_an_input_that_is_no_header_is_refused(tmp_path: Path, store: Path, found: str, listed: str | None) -> None:
    """doit does not hang, not in later runs either, and computes the step."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    Discovering(tmp_path / "first", store).run()
    found, listed = ((found if one is None else one).replace("TMP", str(tmp_path)) for one in (found, listed))

    def tamper(blob: bytes) -> bytes:
        """Replace the inputs that compile:a found: those with a digest, that of no bytes, and those in its list."""
        line, _, content = blob.partition(b"\n")
        if b'"build/found"' not in line:
            return blob
        head, lines = json.loads(line), f"{listed}\n".encode() if listed else b""
        assert [name for name, *_ in head["files"]] == ["build/found", "build/lib"]
        head["files"][0][1] = len(lines)
        head["found"] = {found: hashlib.sha256().hexdigest()} if found else {}
        return json.dumps(head).encode() + b"\n" + lines + content

    replace_blobs(store, tamper)
    second = Discovering(tmp_path / "second", store)
    second.run()
    assert "build" in second.ran()
    second.run("list", "--status")


def test_links_and_modes_come_along(tmp_path: Path, store: Path) -> None:
    for name in ("first", "second"):
        clone = Clone(tmp_path / name, store.as_uri())
        clone.write("fake.py", clone.read("fake.py") + LINKING)
        clone.step("verify:b", "link", "a.txt", "build/verify/b.json", links=["build/verify/data"])
        clone.run()
    assert "b.json" not in clone.ran()
    assert (clone.root / "build/verify/data").readlink() == Path("../a.npz")
    assert (clone.root / "build/verify/b.json").stat().st_mode & 0o111


LINKING = """
def do_link(source, target):
    do_copy(source, target)
    os.chmod(target, 0o755)
    if not os.path.lexists("build/verify/data"):
        os.symlink("../a.npz", "build/verify/data")
"""


def test_commands_and_events_say_what_came_from_where(store: Path, second: Clone) -> None:
    url = store.as_uri()
    events = [json.loads(line) for line in second.run("-r", "jsonl").splitlines()]
    taken = {event["step"]: event.get("from") for event in events if event["event"] == "end"}
    assert taken == {**dict.fromkeys(["codegen:a", "data:a", "export:a"], url), "report:a": None}
    assert f"from the shared cache {url}" in second.doit("info", "data:a").stdout
    assert "from the shared cache" not in second.doit("info", "report:a").stdout
    assert f"4 steps, all up to date; 3 of them from the shared cache {url}" in second.doit("why").stdout
    second.write("a.txt", "another")
    second.run(OPMATRIX_CACHE="off")
    assert "from the shared cache" not in second.doit("info", "data:a").stdout


# Stores that are slow, gone, or answer nonsense: one warning, and two seconds in all.

WARNING = "the shared cache is left out from here on"


ANSWERS = {
    "silent": b"",
    "nonsense": b"HTTP/1.0 200 OK\r\nContent-Length: 30\r\n\r\n<html>please log in here</html",
    "broken": b"HTTP/1.0 500 Broken\r\n\r\n",
    "dripping": b"HTTP/1.0 200 OK\r\nContent-Length: 3000\r\n\r\n",
    "slow": b"HTTP/1.0 404 Not Found\r\n\r\n",
    "gone": b"",
}


# Logs the limit of each wait that has one, or, if what it waits for came, the 0.9 s that the slow store takes.
LOGS_WAITS = """
import threading

def wait(condition, timeout=None, real=threading.Condition.wait):
    came = real(condition, timeout)
    if timeout is not None and threading.current_thread() is threading.main_thread():
        with open("waits", "a") as log: print(0.9 if came else timeout, file=log)
    return came

threading.Condition.wait = wait
open("waits", "a").close()
"""


@pytest.mark.parametrize(
    ("how", "most"),
    [("silent", 2.1), ("nonsense", 0.9), ("broken", 0.9), ("dripping", 2.1), ("slow", 2.2), ("gone", 0.9)],
)
def test_a_store_that_does_not_answer_costs_two_seconds_and_one_warning(tmp_path: Path, how: str, most: float) -> None:
    def answer(connection: socket.socket) -> None:
        read_request(connection)
        time.sleep({"silent": 1000, "slow": 0.9}.get(how, 0))
        connection.sendall(ANSWERS[how])
        while how == "dripping":
            time.sleep(0.1)
            connection.sendall(b"<")

    with socket_server(answer) as url:
        clone = Clone(tmp_path / "clone", "http://127.0.0.1:1" if how == "gone" else url)
        clone.write("fake.py", clone.read("fake.py") + LOGS_WAITS)
        # A busy machine may need 2 s for an answer; where one comes, the first already ends all.
        out = clone.run(FAKE_PATIENCE="2" if how in ("silent", "dripping", "slow") else "500")
    assert out.count("shared cache") == 1
    assert WARNING in out
    assert sorted(clone.ran()) == ALL
    # 2 s, and the 0.1 s of each request that are not slow.
    assert sum(map(float, clone.read("waits").splitlines())) < most + 0.01


def test_a_wrong_setting_ends_the_run_before_anything_ran(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "clone", "carrier-pigeon:home")
    done = clone.doit(OPMATRIX_CACHE=clone.url)
    assert done.returncode == 2
    assert "the shared cache's url is" in done.stderr
    assert clone.ran() == []
