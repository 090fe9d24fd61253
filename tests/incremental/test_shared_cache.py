"""Two clones and one shared cache: what one computed, the other takes, and nothing that is not the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from opmatrix.shared_cache import entry
from tests.incremental.conftest import Clone

pytestmark = pytest.mark.incremental


@pytest.fixture
def second(tmp_path: Path, store: Path, first: Clone) -> Clone:
    return Clone(tmp_path / "another place" / "second", store.as_uri())


def blobs(store: Path) -> list[Path]:
    return [path for path in (store / "cas").iterdir() if path.is_file()]


@pytest.mark.parametrize("processes", [1, 4])
def test_another_clone_computes_nothing(first: Clone, second: Clone, processes: int) -> None:
    out = second.run("-n", str(processes))
    assert second.ran() == ["a.h"]
    assert second.read("build/a.onnx") == first.read("build/a.onnx") == "HELLO "
    assert "4 steps in" in out
    assert "1 run, 3 from the shared cache" in out
    assert "all up to date" in second.run()
    assert "all up to date" in second.run(OPMATRIX_CACHE="off")


def test_what_differs_is_computed_and_then_shared_back(first: Clone, second: Clone) -> None:
    second.write("a.txt", "good day")
    second.run()
    assert sorted(second.ran()) == ["a.g", "a.h", "a.npz", "a.onnx"]
    first.write("a.txt", "good day")
    first.run()
    assert first.ran() == ["a.h"]
    second.write("a.txt", "good day# a remark: only the first step differs, its output does not")
    second.run()
    assert sorted(second.ran()) == ["a.g", "a.h"]


def test_results_of_another_configuration_are_not_taken(first: Clone, second: Clone) -> None:
    second.steps[1]["config"] = "numpy 3"
    second.run()
    assert sorted(second.ran()) == ["a.h", "a.npz"]


def test_with_the_option_always_nothing_is_taken(first: Clone, second: Clone) -> None:
    second.run("-a")
    assert sorted(second.ran()) == ["a.g", "a.h", "a.npz", "a.onnx"]


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
    for blob in blobs(store):
        blob.write_bytes(blob.read_bytes().replace(b"HELLO", b"JELLO"))
    out = second.run(mode="write")
    assert sorted(second.ran()) == ["a.g", "a.h", "a.npz", "a.onnx"]
    assert second.read("build/a.onnx") == "HELLO "
    assert "the blob has another digest than its name, and 2 more" in out
    shutil.rmtree(second.root / "build")
    second.run()
    assert second.ran() == ["a.h"]


def test_a_blob_that_writes_elsewhere_is_refused(store: Path, second: Clone) -> None:
    for action in (store / "ac").iterdir():
        _, _, told = entry.decode(action.read_bytes())
        head = {"files": [["../stolen", 3, False]], "links": {}, "found": {}, "log": ""}
        blob = json.dumps(head).encode() + b"\nhey"
        digest = hashlib.sha256(blob).hexdigest()
        (store / "cas" / digest).write_bytes(blob)
        action.write_bytes(entry.encode(digest, len(blob), told))
    out = second.run(mode="read")
    assert "it holds other files than the step writes" in out
    assert sorted(second.ran()) == ["a.g", "a.h", "a.npz", "a.onnx"]
    assert not (second.root.parent / "stolen").exists()


def test_an_input_that_a_step_discovers_must_be_the_same(tmp_path: Path, store: Path) -> None:
    header = tmp_path / "system.h"
    clones = []
    for name in ("first", "second"):
        header.write_text("as first")
        clones.append(clone := Clone(tmp_path / name, store.as_uri()))
        listed = clone.step("compile:a", "split", "names.txt", "build")
        listed.update(writes=["build/lib"], discovered_inputs="build/found", reads=["names.txt"])
        clone.write("names.txt", "lib")
        clone.write("build/found", f"{header}\n")
    clones[0].run()
    assert "build" in clones[0].ran()
    clones[1].run()
    assert "build" not in clones[1].ran()
    header.write_text("of another distribution")
    shutil.rmtree(clones[1].root / "build")
    clones[1].write("build/found", f"{header}\n")
    clones[1].run()
    assert "build" in clones[1].ran()


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
    clones = []
    for name in ("first", "second"):
        clones.append(clone := Clone(tmp_path / name, store.as_uri()))
        step = clone.step("compile:a", "split", "names.txt", "build")
        step.update(writes=["build/lib"], discovered_inputs="build/found", reads=["names.txt"])
        clone.write("names.txt", "lib")
    clones[0].write("build/found", "")
    clones[0].run()
    found, listed = (found if one is None else one for one in (found, listed))
    tamper(store, found=found.replace("TMP", str(tmp_path)), listed=listed.replace("TMP", str(tmp_path)))
    clones[1].run()
    assert "build" in clones[1].ran()
    clones[1].run("list", "--status")


def tamper(store: Path, *, found: str, listed: str) -> None:
    """Replace the inputs that compile:a found: those with a digest, that of no bytes, and those in its list."""
    for action in (store / "ac").iterdir():
        digest, _, told = entry.decode(action.read_bytes())
        line, _, content = (
            (store / "cas" / digest).read_bytes().partition(b"\n")
            if (store / "cas" / digest).exists()
            else (b"", b"", b"")
        )
        if b'"build/found"' not in line:
            continue
        head = json.loads(line)
        names = [name for name, *_ in head["files"]]
        assert names == ["build/found", "build/lib"]
        head["files"][0][1] = len(lines := f"{listed}\n".encode() if listed else b"")
        head["found"] = {found: hashlib.sha256().hexdigest()} if found else {}
        blob = json.dumps(head).encode() + b"\n" + lines + content
        digest = hashlib.sha256(blob).hexdigest()
        (store / "cas" / digest).write_bytes(blob)
        action.write_bytes(entry.encode(digest, len(blob), told))


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


def test_commands_say_what_came_from_where(store: Path, second: Clone) -> None:
    second.run()
    url = store.as_uri()
    assert f"from the shared cache {url}" in second.doit("info", "data:a").stdout
    assert "from the shared cache" not in second.doit("info", "report:a").stdout
    assert f"4 steps, all up to date; 3 of them from the shared cache {url}" in second.doit("why").stdout
    second.write("a.txt", "another")
    second.run(OPMATRIX_CACHE="off")
    assert "from the shared cache" not in second.doit("info", "data:a").stdout


def test_events_say_what_came_from_where(store: Path, second: Clone) -> None:
    events = [json.loads(line) for line in second.run("-r", "jsonl").splitlines()]
    taken = {event["step"]: event.get("from") for event in events if event["event"] == "end"}
    assert taken == {**dict.fromkeys(["codegen:a", "data:a", "export:a"], store.as_uri()), "report:a": None}


# Stores that are slow, gone, or answer nonsense: one warning, and two seconds in all.

WARNING = "the shared cache is left out from here on"


class Answers(BaseHTTPRequestHandler):
    """Answers as `how` says."""

    how = ""

    def do_GET(self) -> None:
        if self.how == "silent":
            time.sleep(1000)
        elif self.how == "nonsense":
            self.send_response(200)
            self.send_header("Content-Length", "30")
            self.end_headers()
            self.wfile.write(b"<html>please log in here</html>"[:30])
        elif self.how == "broken":
            self.send_error(500)
        elif self.how == "dripping":
            self.send_response(200)
            self.send_header("Content-Length", "3000")
            self.end_headers()
            for _ in range(3000):
                self.wfile.write(b"<")
                time.sleep(0.1)
        elif self.how == "slow":
            time.sleep(0.9)
            self.send_error(404)

    do_PUT = do_GET  # noqa: N815 - as above

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    found.daemon_threads = True
    found.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that no longer waits
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


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
    ("how", "most"), [("silent", 2.1), ("nonsense", 0.9), ("broken", 0.9), ("dripping", 2.1), ("slow", 2.2)]
)
def test_a_store_that_does_not_answer_costs_two_seconds_and_one_warning(
    tmp_path: Path, server: ThreadingHTTPServer, how: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answers, "how", how)
    clone = Clone(tmp_path / "clone", f"http://127.0.0.1:{server.server_port}")
    clone.write("fake.py", clone.read("fake.py") + LOGS_WAITS)
    # A busy machine may need 2 s for an answer; where one comes, the first already ends all.
    out = clone.run(FAKE_PATIENCE="500" if how in ("nonsense", "broken") else "2")
    assert out.count("shared cache") == 1
    assert WARNING in out
    assert sorted(clone.ran()) == ["a.g", "a.h", "a.npz", "a.onnx"]
    # 2 s, and the 0.1 s of each request that are not slow.
    assert sum(map(float, clone.read("waits").splitlines())) < most + 0.01


def test_a_store_that_is_gone_costs_one_warning(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "clone", "http://127.0.0.1:1")
    out = clone.run()
    assert out.count("shared cache") == 1
    assert WARNING in out


def test_a_wrong_setting_ends_the_run_before_anything_ran(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "clone", "carrier-pigeon:home")
    done = clone.doit(OPMATRIX_CACHE=clone.url)
    assert done.returncode == 2
    assert "the shared cache's url is" in done.stderr
    assert clone.ran() == []
