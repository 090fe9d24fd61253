"""A child that a test forks can use OpenMP's threads, also after tests before it used them."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked import forked

pytestmark = pytest.mark.torch


def test_a_child_of_a_process_with_threads_of_openmp(torch: Any, tmp_path: Path) -> None:
    count = torch.get_num_threads()
    x = torch.ones(1_000_000)

    def add() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout's handler needs Python, which waits for OpenMP
        signal.alarm(3600)
        torch.set_num_threads(3)
        assert float((x + x).sum()) == 2_000_000.0

    torch.set_num_threads(4)
    try:
        assert float((x + x).sum()) == 2_000_000.0
        assert forked(add, tmp_path / "output") == ""
        assert float((x + x).sum()) == 2_000_000.0
    finally:
        torch.set_num_threads(count)
