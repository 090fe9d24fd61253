"""The servers of a resident process: a run asks for one by its name, and gets one that is not out of date."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from opmatrix.engine.server_pool import KeptServers, Pool, Resident, ServerError, Wishes
from opmatrix.project.paths import Paths


def entry(arguments: Sequence[str]) -> int:
    print(os.getppid())
    return 0


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


def test_runs_share_a_server(kept: KeptServers, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wishes: list[Wishes | None] = []

    def answer() -> None:
        try:
            while True:
                wishes.append(kept.answer(ours))
        except ConnectionError:
            ours.close()

    thread = threading.Thread(target=answer)
    thread.start()
    resident = Resident(theirs)
    resident.tell((["any"], ["third_party"]))
    with (tmp_path / "lock").open("w") as lock:
        for number in range(2):
            log = tmp_path / f"log{number}"
            pool = Pool(Paths(tmp_path), entry="test_kept_servers:entry", lock=lock.fileno(), kept=resident.server)
            assert pool.run(["say"], server="any", log=log, seconds=500).done
            pool.close()
            assert log.read_text().split()[-1] == str(kept.get("any").process)
    theirs.close()
    thread.join()
    assert wishes == [(["any"], ["third_party"]), None, None]


def test_a_run_whose_resident_process_has_ended(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    resident = Resident(theirs)
    resident.tell(([], []))
    with pytest.raises(ServerError, match="the ort server: `doit watch` has ended"):
        resident.server("ort")
    theirs.close()
