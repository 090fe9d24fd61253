"""The benchmark of faults: it finds ours right, and can tell what is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.incremental.conftest import REPOSITORY

pytestmark = pytest.mark.incremental


def test_faults_are_told_apart() -> None:
    command = [sys.executable, "benchmarks/faults.py", "--only", "flag", "SIGKILL"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    _, flag, killed, *_ = (line.split("|") for line in done.stdout.splitlines())
    assert [part.split() for part in flag[1:]] == [["right", "1"], ["stale,", "for", "good", "0"]]
    assert killed[1].split() == ["right", "1"]
    assert killed[2].split() == ["right", "+", "litter", "3"]
