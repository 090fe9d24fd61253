"""How long a run waits for a store, and for what first."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from opmatrix.shared_cache import client as module
from opmatrix.shared_cache.client import Client
from opmatrix.shared_cache.settings import CacheSettings
from opmatrix.shared_cache.stores import Kind
from opmatrix.step import Step

STEP = Step(group="data", name="a", command=("copy",))


class SlowStore:
    """A store that has nothing, and takes its time to say so. `asked`: the keys, in order."""

    url = "slow:"

    def __init__(self, seconds: float) -> None:
        self._seconds, self._guard = seconds, threading.Lock()
        self.asked: list[str] = []

    def get(self, kind: Kind, digest: str, largest: int | None = None) -> None:
        with self._guard:
            self.asked.append(digest)
        time.sleep(self._seconds)

    def put(self, kind: Kind, digest: str, content: bytes) -> None: ...

    def close(self) -> None: ...


def made(store: SlowStore, warnings: list[str]) -> Client:
    return Client(CacheSettings(url=store.url), store, root=Path("/project"), warn=warnings.append)


def test_what_a_step_waits_for_is_asked_before_what_steps_will_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_THREADS", 1)
    store = SlowStore(0.01)
    client = made(store, [])
    for number in range(50):
        client.look_up(f"ahead {number}")
    assert client.fetch("ahead 49", STEP) is None
    assert store.asked.index("ahead 49") < 10
    client.close()
    assert store.asked.count("ahead 49") == 1


def test_steps_that_wait_at_the_same_time_wait_once() -> None:
    """Eight steps wait 0.5 s each: 0.4 s longer than usual. One after the other that is more than a run waits."""
    warnings: list[str] = []
    client = made(SlowStore(0.5), warnings)
    for _ in range(2):
        names = [f"{_} {number}" for number in range(8)]
        threads = [threading.Thread(target=client.fetch, args=(name, STEP)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not client.lost and warnings == []


def test_a_store_that_is_always_slow_costs_two_seconds_in_all() -> None:
    warnings: list[str] = []
    client = made(SlowStore(0.8), warnings)
    began = time.monotonic()
    for number in range(8):
        client.fetch(str(number), STEP)
    assert client.lost and time.monotonic() - began < 2 * module.PATIENCE
    assert warnings == ["the shared cache is left out from here on: it is slow"]
