from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opmatrix.engine.lock import LockedError, hold, kill_command, left_over, remedy
from tests.incremental.conftest import wait_for

# Holds the lock, starts a child that inherits it, and is killed.
KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from opmatrix.engine.lock import hold
with hold(Path(sys.argv[1])) as descriptor:
    child = subprocess.Popen(["sleep", "0.5"], pass_fds=(descriptor,), stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "build/lock"
    with hold(path), pytest.raises(LockedError, match=r"another run is at work in .*build: process \d+ \("), hold(path):
        pass
    with hold(path):
        pass


def test_processes_that_a_killed_run_left_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that the file names has ended: to kill it would be no remedy."""
    path = tmp_path / "lock"
    script = KILLED.replace('"0.5"', '"1000"')
    killed = subprocess.run([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    ended = path.read_text().strip()
    # The kernel sets the arguments of a process after it has told its parent that the program begins.
    wait_for(lambda: Path(f"/proc/{killed.stdout.strip()}/cmdline").read_bytes() != b"")
    with pytest.raises(LockedError) as info, hold(path, patience=0.2):
        pass
    found = re.fullmatch(
        rf"run {ended} has ended, and a process that it started still holds {path}: process (\d+) \(sleep 1000\)\.\n"
        r"The lock frees itself when it ends\. Wait, or stop it: kill (\d+)\n"
        r"That is safe: a step that did not end runs again\. Then repeat your command, which ran nothing\.",
        str(info.value),
    )
    assert found and found[1] == found[2] != ended
    os.kill(int(found[2]), signal.SIGKILL)
    with hold(path):
        pass


def test_several_processes_that_a_killed_run_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one of another user."""
    monkeypatch.chdir(tmp_path)
    path, holders = tmp_path / "build/lock", {2: "cc1plus", 3: "ninja"}
    still = "run 1 has ended, and processes that it started still hold build/lock"
    assert left_over("1", path, holders) == f"{still}: process 2 (cc1plus), process 3 (ninja)"
    assert kill_command({0: "a process of another user"}, Path("a b/build/lock")) == "sudo fuser -k 'a b/build/lock'"
    assert remedy(holders, path).startswith("The lock frees itself when they end. Wait, or stop them: kill 2 3\n")


def test_a_new_run_waits_for_children_of_a_killed_run(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "lock"
    began = time.monotonic()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=root, check=False)
    assert killed.returncode == -9
    with hold(path, patience=3600):
        assert time.monotonic() - began > 0.4
