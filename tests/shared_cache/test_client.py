"""How long a run waits for a store, and for what first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from opmatrix.records.step import Step
from opmatrix.shared_cache import client as module
from opmatrix.shared_cache.client import Client
from opmatrix.shared_cache.settings import CacheSettings
from opmatrix.shared_cache.store import Kind
from tests.incremental.conftest import wait_for

STEP = Step(group="data", name="a", command=("copy",))


class Clock:
    """Seconds that pass only where a store answers. `waits`: what steps have begun to wait for."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, list[object]()

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made, result = Clock(), module.Future[None].result

    def wait(coming: module.Future[None], _: float) -> None:
        made.waits.append(coming)
        return result(coming)

    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(module.Future, "result", wait)
    return made


class SlowStore:
    """A store that has nothing, and answers when `answer` returns. `asked`: the keys, in order."""

    url = "slow:"

    def __init__(self, answer: Callable[[], object]) -> None:
        self._answer, self._guard = answer, threading.Lock()
        self.asked: list[str] = []

    def get(self, kind: Kind, digest: str, largest: int | None = None) -> None:
        with self._guard:
            self.asked.append(digest)
        self._answer()

    def put(self, kind: Kind, digest: str, content: bytes) -> None:
        self.get(kind, digest)

    def close(self) -> None: ...


def made(store: SlowStore, warnings: list[str]) -> Client:
    return Client(CacheSettings(url=store.url, mode="write"), store, root=Path("/project"), warn=warnings.append)


def test_what_a_step_waits_for_is_asked_before_what_steps_will_need(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_THREADS", 1)
    needed = threading.Event()
    store = SlowStore(needed.wait)
    client = made(store, [])
    for number in range(50):
        client.look_up(f"ahead {number}")
    in_background = client.in_background

    def seen(work: Callable[[], None], *, order: int = module._NEEDED) -> None:
        in_background(work, order=order)
        needed.set()

    monkeypatch.setattr(client, "in_background", seen)
    assert client.fetch("ahead 49", STEP) is None
    assert store.asked.index("ahead 49") <= 1, "the first was asked before"
    client.close()
    assert store.asked.count("ahead 49") == 1


def test_steps_that_wait_at_the_same_time_wait_once(clock: Clock) -> None:
    """Eight steps wait 0.5 s each: 0.4 s longer than usual. One after the other that is more than a run waits."""
    warnings = list[str]()

    def pass_by() -> None:
        wait_for(lambda: len(clock.waits) == len(store.asked))
        clock.now += 0.5

    store = SlowStore(threading.Barrier(8, pass_by).wait)
    client = made(store, warnings)
    for _ in range(2):
        names = [f"{_} {number}" for number in range(8)]
        threads = [threading.Thread(target=client.fetch, args=(name, STEP)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not client.lost and warnings == []


def test_a_store_that_is_always_slow_costs_two_seconds_in_all(clock: Clock) -> None:
    warnings = list[str]()

    def answer() -> None:
        wait_for(lambda: len(clock.waits) == len(store.asked))
        clock.now += 0.8

    client = made(store := SlowStore(answer), warnings)
    for number in range(8):
        client.fetch(str(number), STEP)
    assert client.lost and store.asked == ["0", "1", "2"]
    assert warnings == ["the shared cache is left out from here on: it is slow"]


def test_a_store_that_is_far_away_is_not_slow(clock: Clock) -> None:
    """Nothing asks for an entry of others ahead of need, so each request takes as long as the way to the store."""
    warnings = list[str]()

    def answer() -> None:
        wait_for(lambda: len(clock.waits) == len(store.asked))
        clock.now += 0.2

    client = made(store := SlowStore(answer), warnings)
    for _ in range(20):
        client.get_entry("key")
    client.close()
    assert not warnings
