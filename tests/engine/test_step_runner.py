"""Which step of a run gets a core."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from opmatrix.engine.step_runner import Cores
from tests.incremental.conftest import wait_for


def task(name: str) -> Any:
    return SimpleNamespace(name=name, step=SimpleNamespace(group=name.partition(":")[0]))


def test_the_step_with_the_lowest_rank_gets_the_next_core() -> None:
    """And of equal ones the first that waited."""
    cores, ran = Cores(1), list[str]()
    cores.ranks = {"data:a": 3, "data:b": 1, "data:c": 2, "data:d": 1}

    def run(name: str) -> None:
        with cores.take(task(name)) as taken:
            ran.append(name)
            assert taken == 1

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in cores.ranks]
    with cores.take(task("data:first")):
        for count, thread in enumerate(threads, 1):
            thread.start()
            wait_for(lambda count=count: len(cores._waiting) == count)
    for thread in threads:
        thread.join()
    assert ran == ["data:b", "data:d", "data:c", "data:a"]
