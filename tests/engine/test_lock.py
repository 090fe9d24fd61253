from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from opmatrix.engine.lock import LockedError, hold

# Holds the lock, starts a child that inherits it, and is killed.
KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from opmatrix.engine.lock import hold
with hold(Path(sys.argv[1])) as descriptor:
    subprocess.Popen(["sleep", "0.5"], pass_fds=(descriptor,))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "build/lock"
    with hold(path), pytest.raises(LockedError, match=r"another run \(process \d+\) is at work in .*build"), hold(path):
        pass
    with hold(path):
        pass


def test_a_new_run_waits_for_children_of_a_killed_run(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "lock"
    began = time.monotonic()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=root, check=False)
    assert killed.returncode == -9
    with hold(path):
        assert time.monotonic() - began > 0.4
