"""Claims: which of several runs computes a step that each of them needs and none has computed yet.

A claim is an entry of its own, next to that of the step. It names the run that computes, and a number that grows
meanwhile; another run waits for the result as long as the number grows. Stores have no operation that only one of two
runs can do, so a run reads its claim again after a moment. Where two runs still claim a step, both compute it: never
wrong, only twice.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from opmatrix.cache import entry

BEAT = 1.0
"""Seconds after which the number of a claim grows."""
DEAD = 5.0
"""Seconds after which a claim whose number does not grow no longer counts: its run was killed."""
_SETTLED = 0.05  # seconds after which another run's claim would be there, in addition to those of two requests
_LONGEST = 0.2  # of two requests: with a slower store, two runs may compute the same
_POLL = 0.2
_EMPTY = hashlib.sha256().hexdigest()  # a blob that servers have, as an entry must name one

_T = TypeVar("_T")


class _Entries(Protocol):
    """What claims need of the client. None where there is no entry, or where the store is given up."""

    @property
    def lost(self) -> bool: ...

    def get_entry(self, key: str) -> bytes | None: ...

    def put_entry(self, key: str, content: bytes) -> None: ...


@dataclass(frozen=True, kw_only=True)
class _Claim:
    run: str
    number: int
    over: bool = False  # whether the run no longer computes the step


class Claims:
    """The claims of one run. Worker threads call `take` and `release`."""

    def __init__(self, entries: _Entries) -> None:
        self._entries, self._run = entries, secrets.token_hex(8)
        self._guard = threading.Lock()
        self._writing = threading.Lock()  # no beat of a claim may come after its end
        self._mine: dict[str, _Claim] = {}
        self._beats: threading.Thread | None = None

    def take(self, key: str, look: Callable[[], _T | None], *, longest: float) -> _T | None:
        """Return what `look` finds once another run has computed the step; None if this run is to compute it, and then
        to call `end` or `release`. It waits at most `longest` seconds: nobody signs a claim."""
        last, since, waited = None, time.monotonic(), False
        until = since + longest
        while not self._entries.lost and (now := time.monotonic()) < until:
            claim = self._read(key)
            if claim != last:
                last, since = claim, now
            free = claim is None or claim.over or claim.run == self._run or now - since > DEAD
            if (waited or not free) and (found := look()) is not None:
                return found
            if not free:
                waited = True
                time.sleep(_POLL)
            elif self._claim(key):
                found = look()  # stored before this run claimed the step
                if found is not None:
                    self.release(key)
                return found
        return None

    def end(self, key: str) -> tuple[str, bytes] | None:
        """End a claim. Return the key and content of the entry that says so, which is to be stored after the result:
        otherwise a run to which the result is of no use, as it is damaged, would wait for another."""
        with self._writing, self._guard:
            claim = self._mine.pop(key, None)
        return (_name(key), _entry(replace(claim, over=True))) if claim else None

    def release(self, key: str) -> None:
        """End a claim at once: the step failed, or its result is there."""
        if over := self.end(key):
            self._entries.put_entry(*over)

    def _claim(self, key: str) -> bool:
        """Claim a step; return whether this run has it."""
        began = time.monotonic()
        self._write(key, claim := _Claim(run=self._run, number=0))
        if self._entries.lost:  # just now
            return False
        time.sleep(_SETTLED + min(2 * (time.monotonic() - began), _LONGEST))
        there = self._read(key)
        if there is None or there.run != self._run:
            return False
        with self._guard:
            self._mine[key] = claim
            if self._beats is None:
                self._beats = threading.Thread(target=self._beat, daemon=True, name="claims")
                self._beats.start()
        return True

    def _beat(self) -> None:
        while not self._entries.lost:
            time.sleep(BEAT)
            with self._guard:
                mine = [*self._mine]
            for key in mine:
                with self._writing:
                    with self._guard:
                        if (claim := self._mine.get(key)) is None:  # it ended meanwhile
                            continue
                        self._mine[key] = claim = replace(claim, number=claim.number + 1)
                    self._write(key, claim)

    def _read(self, key: str) -> _Claim | None:
        """Return the claim of a step, or None where there is none that can be read."""
        if (content := self._entries.get_entry(_name(key))) is None:
            return None
        try:
            found = json.loads(entry.decode(content)[2])
            return _Claim(run=str(found["run"]), number=int(found["number"]), over=bool(found["over"]))
        except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
            return None

    def _write(self, key: str, claim: _Claim) -> None:
        self._entries.put_entry(_name(key), _entry(claim))


def _name(key: str) -> str:
    """Return the key of the claim of a step's key."""
    return hashlib.sha256(f"claim {key}".encode()).hexdigest()


def _entry(claim: _Claim) -> bytes:
    return entry.encode(_EMPTY, 0, json.dumps(vars(claim)).encode())
