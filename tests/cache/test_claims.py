"""One of several runs computes a step, the others wait for it; a run that is killed or fails delays them little."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from opmatrix.cache import claims, entry
from opmatrix.cache.claims import Claims
from tests.incremental.conftest import wait_for


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


class Clock:
    """The seconds for which runs sleep while they wait. With `watching`, a number of runs that wait: those between the
    beats of the one that computes, each after a look of every run that waits. A busy machine adds none."""

    def __init__(self) -> None:
        self.waited = self.beaten = 0.0
        self.watching, self.looked = 0, set[threading.Thread]()

    def monotonic(self) -> float:
        return self.beaten if self.watching else self.waited

    def sleep(self, seconds: float) -> None:
        time.sleep(0.001)
        if threading.current_thread().name != "claims":
            self.waited += seconds
            self.looked.add(threading.current_thread())
            return
        wait_for(lambda: len(self.looked) >= self.watching)
        self.looked.clear()
        self.beaten += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    with monkeypatch.context() as patched:
        patched.setattr(claims, "time", made)
        yield made
    made.watching = 0  # so that no thread waits any longer


def seconds_waited(store: Entries, clock: Clock, *, longest: float = 60) -> float:
    """Return after how many seconds another run may compute the step."""
    began = clock.waited
    assert Claims(store).take("key", store.look("key"), longest=longest) is None
    return clock.waited - began


def test_of_runs_that_begin_together_one_computes(clock: Clock) -> None:
    all_looked, all_claimed = threading.Barrier(5), threading.Barrier(5)

    class Together(Entries):
        """All runs find no claim, and claim the step, before one of them reads its claim again."""

        def get_entry(self, key: str) -> bytes | None:
            found = super().get_entry(key)
            if threading.current_thread() in {*threads} - claimed:
                all_looked.wait()
            return found

        def put_entry(self, key: str, content: bytes) -> None:
            super().put_entry(key, content)
            if threading.current_thread() in {*threads} - claimed:
                all_claimed.wait()
                claimed.add(threading.current_thread())

    clock.watching, claimed = 4, set[threading.Thread]()
    store, computed, taken = Together(), list[int](), list[str | None]()

    def run(number: int) -> None:
        mine = Claims(store)
        if (found := mine.take("key", store.look("key"), longest=1e9)) is None:
            computed.append(number)
            wait_for(lambda: clock.beaten > 2 * claims.DEAD)  # the claim is alive
            store.results["key"] = "result"
            mine.release("key")
        taken.append(found)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(computed) == 1 and taken.count("result") == 4


def test_a_result_that_came_meanwhile_is_taken() -> None:
    store = Entries()
    store.results["key"] = "result"
    assert Claims(store).take("key", store.look("key"), longest=60) == "result"


def test_the_claim_of_a_killed_run_ends(clock: Clock) -> None:
    killed = Claims(store := Entries())
    assert killed.take("key", store.look("key"), longest=60) is None
    killed._mine.clear()  # it beats no more, as a killed process
    assert claims.DEAD < seconds_waited(store, clock, longest=600) < 600


def test_nobody_waits_for_a_step_that_failed(clock: Clock) -> None:
    failing = Claims(store := Entries())
    assert failing.take("key", store.look("key"), longest=60) is None
    failing.release("key")
    assert seconds_waited(store, clock) < claims.DEAD


def test_nobody_waits_for_a_step_whose_result_is_stored_and_of_no_use(clock: Clock) -> None:
    done = Claims(store := Entries())
    assert done.take("key", store.look("key"), longest=60) is None
    over = done.end("key")
    assert over and done.end("key") is None
    store.put_entry(*over)
    assert seconds_waited(store, clock) < claims.DEAD


def test_no_beat_comes_after_the_end_of_a_claim(clock: Clock) -> None:
    """Another run would wait for a step that failed."""
    beating, go = threading.Event(), threading.Event()

    class Slow(Entries):
        def put_entry(self, key: str, content: bytes) -> None:
            if self.entries and not go.is_set():  # the first beat
                beating.set()
                go.wait()
            super().put_entry(key, content)

    failing = Claims(store := Slow())
    assert failing.take("key", store.look("key"), longest=60) is None
    beating.wait()
    ends = threading.Thread(target=failing.release, args=("key",))
    ends.start()
    time.sleep(0.05)
    go.set()
    ends.join()
    before = clock.beaten
    wait_for(lambda: clock.beaten > before + 2 * claims.BEAT)
    claim = failing._read("key")
    assert claim and claim.over


def test_a_run_does_not_wait_for_itself() -> None:
    mine = Claims(store := Entries())
    assert mine.take("key", store.look("key"), longest=60) is None
    mine.release("key")
    assert mine.take("key", store.look("key"), longest=60) is None, "such as a second run of the step in doit watch"


def test_a_claim_that_never_ends_delays_a_run_by_the_time_limit_of_the_step(clock: Clock) -> None:
    """Who can write to the store can write claims, which nobody signs."""
    hostile = Claims(store := Entries())
    assert hostile.take("key", store.look("key"), longest=60) is None
    assert 1 <= seconds_waited(store, clock, longest=1) < claims.DEAD


@pytest.mark.parametrize("content", [
    b"", b"\xff", b"{}",
    *(entry.encode(claims._EMPTY, 0, f'{{"run": "x", "number": {number}, "over": false}}'.encode())
      for number in ("Infinity", "-1e999", "NaN", '"x"', "[]", "9" * 5000)),
])  # fmt: skip
def test_a_claim_that_cannot_be_read_is_none(content: bytes) -> None:
    store = Entries()
    store.entries[claims._name("key")] = content
    assert Claims(store).take("key", store.look("key"), longest=60) is None


def test_without_a_store_every_run_computes(clock: Clock) -> None:
    store = Entries()
    assert Claims(store).take("key", store.look("key"), longest=60) is None
    store.lost = True
    assert seconds_waited(store, clock) == 0
