"""Servers and their clients, with functions of this file as steps, and the servers that a resident process keeps."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from opmatrix.basics.step_log import capture_stdout, last_running, now_running, read_log
from opmatrix.engine.fork_server import _LAST
from opmatrix.engine.server_pool import KeptServers, Pool, Resident, ServerError, Wishes
from opmatrix.engine.step_failure import _WAITING
from opmatrix.project.paths import Paths
from tests.engine.conftest import begin
from tests.incremental.conftest import alive, wait_for

LONG = 10_000  # seconds: longer than pytest lets a test take


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
        Path("asleep").write_text(str(time.monotonic()))
        time.sleep(LONG)
    if what == "wait":
        wait_for(Path(rest[0]).exists)
    if what == "spin":
        while True:
            pass
    if what == "start":  # as ninja starts a compiler: in a group of its own
        started = subprocess.Popen(["sleep", str(LONG)], process_group=0)
        Path(rest[0]).write_text(str(started.pid))
        started.wait()
    if what == "say":
        print(*rest)
        print(os.environ.get("COLUMNS"), os.environ["OMP_NUM_THREADS"], Path.cwd())
    if what == "parent":
        print(os.getppid())
    if rest == ["imported"]:
        print([f"opmatrix.{module}" in sys.modules for module in ("codegen.write_code", "toolchain.compile")])
    return 7 if what == "seven" else 0


@pytest.fixture(params=[None, "any"], ids=["light", "any"])
def server(request: pytest.FixtureRequest) -> str | None:
    return cast("str | None", request.param)


def await_process(file: Path) -> str:
    """Return the process that `start` writes to a file when it has started it."""
    wait_for(lambda: file.is_file() and file.read_text() != "")
    return file.read_text()


def test_a_step_that_is_stopped_computed(pool: Pool, tmp_path: Path) -> None:
    """What the kernel counted of the whole step decides, and a busy machine may give it too little: it runs again."""
    while True:
        ending = pool.run(["spin"], server=None, log=tmp_path / "log", seconds=1.2)
        assert ending.stopped == "time"
        if not ending.last_cpu:  # the server slept through the last second
            continue
        cpu, seconds = ending.last_cpu
        before = ending.seconds - seconds  # in which it used at most as much CPU time
        if ending.cpu - before > _WAITING * seconds:
            break
    assert seconds > 0 and cpu > _WAITING * seconds


def test_a_step_that_is_stopped_waited(pool: Pool, tmp_path: Path) -> None:
    """A slow machine may need the last second to start it: it runs again, for longer."""
    asleep, limit = tmp_path / "asleep", 1.2
    while True:
        asleep.unlink(missing_ok=True)
        started = time.monotonic()
        ending = pool.run(["sleep"], server=None, log=tmp_path / "log", seconds=limit)
        assert ending.stopped == "time"
        # Its CPU time is first counted _LAST before the limit of a step that began after `started`.
        if ending.last_cpu and asleep.exists() and float(asleep.read_text() or "inf") <= started + limit - _LAST:
            break
        limit *= 2
    cpu, seconds = ending.last_cpu
    assert seconds > 0 and cpu <= _WAITING * seconds


@pytest.mark.parametrize("arguments, status", [(["nothing"], 0), (["seven"], 7), (["exit"], 0), (["exit", "text"], 1)])
def test_exit_codes(pool: Pool, tmp_path: Path, server: str | None, arguments: list[str], status: int) -> None:
    ending = pool.run(arguments, server=server, log=tmp_path / "log", seconds=LONG)
    assert (ending.status, ending.stopped) == (status, "")
    assert ending.done == (arguments == ["nothing"])


@pytest.mark.parametrize("how", ["end", "fork"])
def test_a_step_whose_code_ends_the_process_with_0_is_not_done(
    pool: Pool, tmp_path: Path, server: str | None, how: str
) -> None:
    ending = pool.run([how], server=server, log=tmp_path / "log", seconds=LONG)
    assert (ending.status, ending.stopped, ending.done) == (0, "", False)


@pytest.mark.parametrize("how", ["flood", "flood captured"])
def test_a_step_that_floods_its_log_is_stopped(pool: Pool, tmp_path: Path, server: str | None, how: str) -> None:
    ending = pool.run([how], server=server, log=tmp_path / "log", seconds=LONG)
    assert (ending.status, ending.stopped) == (-9, "log")
    assert (tmp_path / "log").stat().st_size < 3_000_000
    assert how == "flood captured" or last_running(read_log(tmp_path / "log")) == "case seed"


def test_output_goes_to_the_log_below_the_command(pool: Pool, tmp_path: Path, server: str | None) -> None:
    log = tmp_path / "log"
    pool.run(["say", "two words", "ü"], server=server, log=log, seconds=LONG, environment={"COLUMNS": "99"})
    assert log.read_text() == f"$ python -m opmatrix say 'two words' 'ü'\ntwo words ü\n99 1 {tmp_path}\n"


def test_what_a_stage_needs_is_imported_once_and_only_for_it(pool: Pool, tmp_path: Path) -> None:
    """Not in the light server, a fork of this process, in which other tests import stages."""
    for name, found in (("other", [False, False]), ("compile", [False, True]), ("other", [False, True])):
        pool.run([name, "imported"], server="any", log=tmp_path / "log", seconds=60)
        assert read_log(tmp_path / "log").splitlines()[-1] == str(found)


def test_a_step_inherits_nothing_from_its_server(pool: Pool, tmp_path: Path, server: str | None) -> None:
    pool.run(["open"], server=server, log=tmp_path / "log", seconds=LONG)
    assert (tmp_path / "log").read_text().splitlines()[1] == "[0, 1, 2, 3] True"


def test_threads_may_share_a_pool(pool: Pool, tmp_path: Path, server: str | None) -> None:
    steps = [begin(pool.run, ["seven"], server=server, log=tmp_path / f"log{n}", seconds=LONG) for n in range(20)]
    assert [step.result().status for step in steps] == [7] * 20


def test_the_end_of_a_server_leaves_the_one_that_another_thread_has_started(pool: Pool, tmp_path: Path) -> None:
    """Both threads had a step in the server that ended. Without its client a server cannot be ended."""
    pool.run(["nothing"], server="any", log=tmp_path / "log", seconds=LONG)
    before = pool._clients["any"]
    ended = begin(pool.run, ["sleep"], server="any", log=tmp_path / "log", seconds=LONG)
    wait_for(lambda: "sleep" in read_log(tmp_path / "log"))
    del pool._clients["any"]
    pool.run(["nothing"], server="any", log=tmp_path / "log2", seconds=LONG)
    started = pool._clients["any"]
    os.kill(before.process, signal.SIGKILL)
    assert isinstance(ended.exception(), ServerError) and pool._clients["any"] is started
    before.requests.close()


def test_a_server_that_is_killed_leaves_no_process(pool: Pool, tmp_path: Path, server: str | None) -> None:
    started = tmp_path / "started"
    ended = begin(pool.run, ["start", str(started)], server=server, log=tmp_path / "log", seconds=LONG)
    process = await_process(started)
    os.kill(pool._clients[server or "light"].process, signal.SIGKILL)
    assert "server ended while the step ran" in str(ended.exception())
    wait_for(lambda: not alive(process))


def test_steps_of_other_servers_end_after_the_light_one_was_killed(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second fork of doit would hold the pipe of a step that another thread starts at the same time."""
    pool.run(["nothing"], server="any", log=tmp_path / "log", seconds=LONG)
    starts, goes_on, send = threading.Event(), threading.Event(), socket.send_fds

    def send_later(*arguments: Any) -> int:
        starts.set()
        goes_on.wait()
        return send(*arguments)

    os.kill(pool._clients["light"].process, signal.SIGKILL)
    with pytest.raises(ServerError):
        pool.run(["nothing"], server=None, log=tmp_path / "lost", seconds=LONG)
    with monkeypatch.context() as patched:
        patched.setattr(socket, "send_fds", send_later)
        step = begin(pool.run, ["nothing"], server="any", log=tmp_path / "log", seconds=LONG)
        starts.wait()
        pool.prepare()
        goes_on.set()
        assert step.result(timeout=LONG).done
    assert pool.run(["nothing"], server=None, log=tmp_path / "again", seconds=LONG).done


def test_a_step_holds_the_lock_in_its_server(pool: Pool, tmp_path: Path) -> None:
    """After its client was killed, too. A server that outlives its client holds no lock between two steps."""
    pool.run(["nothing"], server="any", log=tmp_path / "log", seconds=LONG)
    process = pool._clients["any"].process

    def opened() -> list[str]:
        found = []
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found.append(str(descriptor.readlink()))
        return found

    lock, go = str(tmp_path / "lock"), tmp_path / "go"
    assert lock not in opened()
    step = begin(pool.run, ["wait", str(go)], server="any", log=tmp_path / "log", seconds=LONG)
    wait_for(lambda: lock in opened())
    go.touch()
    assert step.result().done and lock not in opened()
    pool.close()
    assert not Path(f"/proc/{process}").exists()


def test_a_step_is_killed_when_its_client_has_ended(tmp_path: Path, pool: Pool) -> None:
    """The server of `doit watch` outlives each of its clients."""
    pool.run(["nothing"], server="any", log=tmp_path / "log", seconds=LONG)
    server = pool._clients["any"]
    client = os.fork()
    if client == 0:
        pool.run(["start", str(tmp_path / "started")], server="any", log=tmp_path / "log", seconds=LONG)
        os._exit(0)
    process = await_process(tmp_path / "started")
    os.kill(client, signal.SIGKILL)
    os.waitpid(client, 0)
    wait_for(lambda: not alive(process))
    assert pool.run(["nothing"], server="any", log=tmp_path / "log", seconds=LONG).done
    assert pool._clients["any"] is server


def test_a_step_that_waits_for_a_server_has_no_core(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that starts the server has one; the server starts once."""
    may_start, held, starts = threading.Event(), [], []
    real = pool._start

    def start(name: str) -> object:
        starts.append(name)
        may_start.wait()
        return real(name)

    monkeypatch.setattr(pool, "_start", start)

    @contextmanager
    def core(name: str) -> Iterator[str]:
        held.append(name)
        yield name
        held.remove(name)

    def use(name: str) -> str:
        with pool.started("any", lambda: core(name)) as taken:
            ran.append(taken)
        return taken

    ran: list[str] = []
    first = begin(use, "first")
    wait_for(lambda: pool.is_starting("any"))
    second = begin(use, "second")
    time.sleep(0.05)
    assert held == ["first"] and ran == [] and not pool.is_starting(None)
    may_start.set()
    assert (first.result(), second.result(), starts, held) == ("first", "second", ["any"], [])
    assert not pool.is_starting("any")


def test_a_server_that_does_not_start_frees_the_core(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(name: str) -> object:
        raise ServerError("it cannot start")

    monkeypatch.setattr(pool, "_start", start)
    held: list[str] = []

    @contextmanager
    def core() -> Iterator[None]:
        held.append("core")
        try:
            yield
        finally:
            held.pop()

    for _ in range(2):
        with pytest.raises(ServerError, match="it cannot start"), pool.started("any", core):
            pass
        assert held == [] and not pool.is_starting("any")


@pytest.fixture
def kept(tmp_path: Path, entry: str) -> Iterator[KeptServers]:
    with closing(KeptServers(Paths(tmp_path), entry=entry)) as made:
        yield made


def test_a_server_is_replaced_when_it_has_ended_or_its_environment_is_new(kept: KeptServers, tmp_path: Path) -> None:
    python = Paths(tmp_path).python("torch2.9")
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    stamp = Paths(tmp_path).stamp("torch2.9")
    stamp.mkdir()
    for name in ("any", "any@torch2.9"):
        first = kept.get(name)
        assert kept.get(name) is first
        os.kill(first.process, signal.SIGKILL)
        os.waitid(os.P_PID, first.process, os.WEXITED | os.WNOWAIT)
        second = kept.get(name)
        assert second.process != first.process
    stamp.rmdir()
    stamp.mkdir()
    assert kept.get("any@torch2.9").process != second.process
    assert not Path(f"/proc/{second.process}").exists()


def test_servers_of_other_environments_do_not_start_ahead(kept: KeptServers) -> None:
    kept.start(["any", "any@torch2.9"])
    assert [*kept._clients] == ["any"]


def test_runs_share_a_server(kept: KeptServers, tmp_path: Path, entry: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wishes: list[Wishes | None] = []

    def answer() -> None:
        with ours, suppress(ConnectionError):
            while True:
                wishes.append(kept.answer(ours))

    answers = begin(answer)
    resident = Resident(theirs)
    resident.tell((["any"], ["third_party"]))
    with (tmp_path / "lock").open("w") as lock:
        for number in range(2):
            log = tmp_path / f"log{number}"
            pool = Pool(Paths(tmp_path), entry=entry, lock=lock.fileno(), kept=resident.server)
            assert pool.run(["parent"], server="any", log=log, seconds=LONG).done
            pool.close()
            assert log.read_text().split()[-1] == str(kept.get("any").process)
    theirs.close()
    answers.result()
    assert wishes == [(["any"], ["third_party"]), None, None]


def test_a_run_whose_resident_process_has_ended(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    resident = Resident(theirs)
    resident.tell(([], []))
    with pytest.raises(ServerError, match="the ort server: `doit watch` has ended"):
        resident.server("ort")
    theirs.close()
