"""One of several runs computes a step, the others wait for it; a run that is killed or fails delays them little."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opmatrix.shared_cache import claims, client
from opmatrix.shared_cache.claims import Claims
from opmatrix.shared_cache.client import Client
from opmatrix.shared_cache.settings import CacheSettings
from opmatrix.shared_cache.stores import Kind


class Entries:
    """A store that runs share. `lost`: whether it is given up."""

    def __init__(self) -> None:
        self.lost = False
        self.entries: dict[str, bytes] = {}
        self.results: dict[str, str] = {}

    def get_entry(self, key: str) -> bytes | None:
        return self.entries.get(key)

    def put_entry(self, key: str, content: bytes) -> None:
        self.entries[key] = content

    def look(self, key: str) -> Callable[[], str | None]:
        return lambda: self.results.get(key)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"BEAT": 0.05, "DEAD": 0.5, "_POLL": 0.01}.items():
        monkeypatch.setattr(claims, name, seconds)


def test_of_runs_that_begin_together_one_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_SETTLED", 0.5)  # a busy machine may delay a thread between two requests
    monkeypatch.setattr(claims, "DEAD", 1.5)
    store, computed, taken = Entries(), list[int](), list[str | None]()

    def run(number: int) -> None:
        mine = Claims(store)
        if (found := mine.take("key", store.look("key"), longest=60)) is None:
            computed.append(number)
            time.sleep(2)  # longer than DEAD: the claim is alive
            store.results["key"] = "result"
            mine.release("key")
        taken.append(found)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(computed) == 1 and taken.count("result") == 4


def test_a_result_that_came_meanwhile_is_taken() -> None:
    store = Entries()
    store.results["key"] = "result"
    assert Claims(store).take("key", store.look("key"), longest=60) == "result"


def test_the_claim_of_a_killed_run_ends() -> None:
    killed = Claims(store := Entries())
    assert killed.take("key", store.look("key"), longest=60) is None
    killed._mine.clear()  # it beats no more, as a killed process
    began = time.monotonic()
    assert Claims(store).take("key", store.look("key"), longest=60) is None
    assert 0.4 < time.monotonic() - began < 30


def test_nobody_waits_for_a_step_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "DEAD", 60)
    failing = Claims(store := Entries())
    assert failing.take("key", store.look("key"), longest=60) is None
    failing.release("key")
    began = time.monotonic()
    assert Claims(store).take("key", store.look("key"), longest=60) is None
    assert time.monotonic() - began < 30


def test_nobody_waits_for_a_step_whose_result_is_stored_and_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "DEAD", 60)
    done = Claims(store := Entries())
    assert done.take("key", store.look("key"), longest=60) is None
    over = done.end("key")
    assert over and done.end("key") is None
    store.put_entry(*over)
    began = time.monotonic()
    assert Claims(store).take("key", store.look("key"), longest=60) is None
    assert time.monotonic() - began < 30


def test_no_beat_comes_after_the_end_of_a_claim() -> None:
    """Another run would wait for a step that failed."""
    beating, go = threading.Event(), threading.Event()

    class Slow(Entries):
        def put_entry(self, key: str, content: bytes) -> None:
            if self.entries and not go.is_set():  # the first beat
                beating.set()
                go.wait(60)
            super().put_entry(key, content)

    failing = Claims(store := Slow())
    assert failing.take("key", store.look("key"), longest=60) is None
    assert beating.wait(60)
    ends = threading.Thread(target=failing.release, args=("key",))
    ends.start()
    time.sleep(0.05)
    go.set()
    ends.join()
    time.sleep(0.1)  # two beats
    claim = failing._read("key")
    assert claim and claim.over


def test_a_run_does_not_wait_for_itself() -> None:
    mine = Claims(store := Entries())
    assert mine.take("key", store.look("key"), longest=60) is None
    mine.release("key")
    assert mine.take("key", store.look("key"), longest=60) is None, "such as a second run of the step in doit watch"


def test_a_claim_that_never_ends_delays_a_run_by_the_time_limit_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can write to the store can write claims, which nobody signs."""
    monkeypatch.setattr(claims, "DEAD", 60)
    hostile = Claims(store := Entries())
    assert hostile.take("key", store.look("key"), longest=60) is None
    began = time.monotonic()
    assert Claims(store).take("key", store.look("key"), longest=1) is None
    assert 1 <= time.monotonic() - began < 30


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}"])
def test_a_claim_that_cannot_be_read_is_none(content: bytes) -> None:
    store = Entries()
    store.entries[claims._name("key")] = content
    assert Claims(store).take("key", store.look("key"), longest=60) is None


def test_without_a_store_every_run_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "DEAD", 60)
    store = Entries()
    assert Claims(store).take("other", store.look("other"), longest=60) is None
    store.lost = True
    began = time.monotonic()
    assert Claims(store).take("other", store.look("other"), longest=60) is None
    assert time.monotonic() - began < 30


def test_a_store_that_is_far_away_is_not_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing asks for a claim ahead of need, so each request takes as long as the way to the store."""

    class Far:
        url = "https://far.example"

        def get(self, kind: Kind, digest: str, largest: int | None = None) -> bytes | None:
            time.sleep(0.2)
            return None

        def put(self, kind: Kind, digest: str, content: bytes) -> None:
            time.sleep(0.2)

        def close(self) -> None: ...

    monkeypatch.setattr(client, "PATIENCE", 0.6)
    warned: list[str] = []
    far = Client(CacheSettings(url=Far.url, mode="write"), Far(), root=tmp_path, warn=warned.append)
    for _ in range(4):
        far.get_entry("key")
        far.put_entry("key", b"claim")
    far.close()
    assert not warned
