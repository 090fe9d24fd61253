"""Servers and their clients, with functions of this file as steps."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from opmatrix.engine.server_pool import Ending, Pool, ServerError
from opmatrix.project.paths import Paths
from opmatrix.step_log import capture_stdout, last_running, now_running, read_log
from tests.incremental.conftest import wait_for


def entry(arguments: Sequence[str]) -> int:
    what, *rest = arguments
    if what == "end":  # as C's exit(0)
        now_running("case seed")
        os._exit(0)
    if what == "fork" and os.fork():  # the child returns 0
        os.wait()
        os._exit(0)
    if what == "flood":
        now_running("case seed")
        while True:
            os.write(1, b"x" * 999_999 + b"\n")
    if what == "flood captured":
        with capture_stdout():
            while True:
                os.write(1, b"x" * 999_999 + b"\n")
    if what == "exit":
        sys.exit(rest[0] if rest else None)
    if what == "open":
        print(sorted(int(d.name) for d in Path("/proc/self/fd").iterdir())[:-1], os.getpid() == os.getpgid(0))
    if what == "sleep":
        time.sleep(20)
    if what == "spin":
        while True:
            pass
    if what == "start":  # as ninja starts a compiler: in a group of its own
        started = subprocess.Popen(["sleep", "20"], process_group=0)
        Path(rest[0]).write_text(str(started.pid))
        started.wait()
    if what == "say":
        print(*rest)
        print(os.environ.get("COLUMNS"), os.environ["OMP_NUM_THREADS"], Path.cwd())
    return 7 if what == "seven" else 0


@pytest.fixture(params=["light", "any"])
def server(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "light" else "any"


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    made = Pool(Paths(tmp_path), entry="test_server_pool:entry", lock=lock)
    made.prepare()
    yield made
    made.close()
    os.close(lock)


@pytest.mark.parametrize("what", ["spin", "sleep"])
def test_a_step_that_is_stopped_computed_or_waited(pool: Pool, tmp_path: Path, what: str) -> None:
    ending = pool.run([what], server=None, log=tmp_path / "log", seconds=0.6)
    assert ending.stopped == "time" and ending.last_cpu
    cpu, seconds = ending.last_cpu
    assert 0.2 < seconds < 5 and (cpu > 0.05 * seconds) is (what == "spin")


@pytest.mark.parametrize("arguments, status", [(["nothing"], 0), (["seven"], 7), (["exit"], 0), (["exit", "text"], 1)])
def test_exit_codes(pool: Pool, tmp_path: Path, server: str | None, arguments: list[str], status: int) -> None:
    ending = pool.run(arguments, server=server, log=tmp_path / "log", seconds=10)
    assert (ending.status, ending.stopped) == (status, "")
    assert ending.done == (arguments == ["nothing"])


@pytest.mark.parametrize("how", ["end", "fork", "exit"])
def test_a_step_whose_code_ends_the_process_with_0_is_not_done(
    pool: Pool, tmp_path: Path, server: str | None, how: str
) -> None:
    ending = pool.run([how], server=server, log=tmp_path / "log", seconds=10)
    assert (ending.status, ending.stopped, ending.done) == (0, "", False)


@pytest.mark.parametrize("how", ["flood", "flood captured"])
def test_a_step_that_floods_its_log_is_stopped(pool: Pool, tmp_path: Path, server: str | None, how: str) -> None:
    ending = pool.run([how], server=server, log=tmp_path / "log", seconds=30)
    assert (ending.status, ending.stopped) == (-9, "log")
    assert (tmp_path / "log").stat().st_size < 3_000_000
    assert how == "flood captured" or last_running(read_log(tmp_path / "log")) == "case seed"


def test_output_goes_to_the_log_below_the_command(pool: Pool, tmp_path: Path, server: str | None) -> None:
    pool.run(["say", "two words", "ü"], server=server, log=tmp_path / "log", seconds=10, environment={"COLUMNS": "99"})
    assert (tmp_path / "log").read_text() == f"$ python -m opmatrix say 'two words' 'ü'\ntwo words ü\n99 1 {tmp_path}\n"


def test_a_step_inherits_nothing_from_its_server(pool: Pool, tmp_path: Path, server: str | None) -> None:
    pool.run(["open"], server=server, log=tmp_path / "log", seconds=10)
    assert (tmp_path / "log").read_text().splitlines()[1] == "[0, 1, 2, 3] True"


def test_threads_may_share_a_pool(pool: Pool, tmp_path: Path, server: str | None) -> None:
    codes: list[int] = []

    def work(i: int) -> None:
        codes.append(pool.run(["seven"], server=server, log=tmp_path / f"log{i}", seconds=10).status)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [7] * 20


def test_the_end_of_a_server_leaves_the_one_that_another_thread_has_started(pool: Pool, tmp_path: Path) -> None:
    """Both threads had a step in the server that ended. Without its client a server cannot be ended."""
    pool.run(["nothing"], server="any", log=tmp_path / "log", seconds=10)
    before = pool._clients["any"]
    raised: list[ServerError] = []

    def work() -> None:
        with pytest.raises(ServerError) as error:
            pool.run(["sleep"], server="any", log=tmp_path / "log", seconds=10)
        raised.append(error.value)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: "sleep" in read_log(tmp_path / "log"))
    del pool._clients["any"]
    pool.run(["nothing"], server="any", log=tmp_path / "log2", seconds=10)
    started = pool._clients["any"]
    os.kill(before.process, signal.SIGKILL)
    thread.join()
    assert raised and pool._clients["any"] is started
    before.requests.close()


def test_a_server_that_is_killed_leaves_no_process(pool: Pool, tmp_path: Path, server: str | None) -> None:
    started = tmp_path / "started"

    def kill() -> None:
        wait_for(lambda: started.is_file() and started.read_text() != "")
        os.kill(pool._clients[server or "light"].process, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ServerError, match="server ended while the step ran"):
        pool.run(["start", str(started)], server=server, log=tmp_path / "log", seconds=10)
    killer.join()
    assert not Path(f"/proc/{started.read_text()}/exe").exists()  # of a zombie there is no program


def test_steps_of_other_servers_end_after_the_light_one_was_killed(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second fork of doit would hold the pipe of a step that another thread starts at the same time."""
    pool.run(["nothing"], server="any", log=tmp_path / "log", seconds=10)
    endings, starts, goes_on, send = list[Ending](), threading.Event(), threading.Event(), socket.send_fds

    def send_later(*arguments: Any) -> int:
        starts.set()
        goes_on.wait(10)
        return send(*arguments)

    def work() -> None:
        endings.append(pool.run(["nothing"], server="any", log=tmp_path / "log", seconds=10))

    os.kill(pool._clients["light"].process, signal.SIGKILL)
    with pytest.raises(ServerError):
        pool.run(["nothing"], server=None, log=tmp_path / "lost", seconds=10)
    with monkeypatch.context() as patched:
        patched.setattr(socket, "send_fds", send_later)
        thread = threading.Thread(target=work)
        thread.start()
        starts.wait(10)
        pool.prepare()
        goes_on.set()
        thread.join(timeout=5)
    done = [ending.done for ending in endings]
    assert pool.run(["nothing"], server=None, log=tmp_path / "again", seconds=10).done
    pool.close()
    thread.join()
    assert done == [True]


def test_servers_hold_the_lock(pool: Pool, tmp_path: Path, server: str | None) -> None:
    pool.run(["nothing"], server=server, log=tmp_path / "log", seconds=10)
    process = pool._clients[server or "light"].process
    opened = [str(d.readlink()) for d in Path(f"/proc/{process}/fd").iterdir()]
    assert str(tmp_path / "lock") in opened
    pool.close()
    assert not Path(f"/proc/{process}").exists()
